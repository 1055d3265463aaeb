"""The store of the alert process: its schema, how instants and label sets are written into it, and SQLite's file."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

from alerts.store.schema import SCHEMA
from lake.errors import SojournError, UserError
from lake.files import private_file


class Rows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...

    @property
    def description(self) -> Any: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection to the store, in the SQL that SQLite and PostgreSQL both know; values stand for ``?``.

    One belongs to one thread; one that is shared to whoever holds its lock.
    """

    def begin(self) -> None:
        """Begin a transaction in which nobody else writes."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any: ...

    def close(self) -> None: ...


class Server(Protocol):
    """Where a store is that is no file."""

    def connect(self, *, shared: bool) -> Database:
        """A connection to it."""

    def in_turn(
        self,
        work: Callable[[], None],
        stop: threading.Event,
        *,
        once: bool = False,
        standing_by: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Do ``work`` as long as this process is the one that evaluates."""

    def read(self) -> AbstractContextManager[Database]:
        """A connection for a look, whoever may write."""


#: Where a store is.
Store: TypeAlias = Path | Server


class StoreError(SojournError):
    """The store cannot be used at this moment."""


#: Columns that tables of earlier versions lack.
ADDED = {"outbox": ("firing", "resolved"), "decisions": ("muted",), "transitions": ("inputs",)}
#: How long a connection waits for another's lock.
_BUSY_SECONDS = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _File(sqlite3.Connection):
    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")


def connect(store: Store, *, shared: bool = False) -> Database:
    """A connection to ``store``, made if need be."""
    if not isinstance(store, Path):
        return store.connect(shared=shared)
    try:
        connection = sqlite3.connect(
            private_file(store),
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=not shared,
            factory=_File,
        )
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA)
        _add_columns(connection)
        name_store(connection)
    except (OSError, sqlite3.Error) as error:
        raise UserError(
            f"{store} cannot be used: {error}",
            "move the file away: alerts then start anew, and fire again if they still hold",
        ) from error
    return connection


@contextmanager
def reading(store: Store) -> Iterator[Database]:
    """A connection for a look at ``store``; UserError if it is a file that is not there."""
    if not isinstance(store, Path):
        with store.read() as database:
            yield database
        return
    if not store.is_file():
        raise UserError(f"{store} is not there", "name the lake of an alert process with --lake")
    with closing(connect(store)) as database:
        yield database


def name_store(database: Database) -> None:
    """Give a new store the name that it keeps."""
    database.execute("INSERT INTO meta VALUES ('store_id', ?) ON CONFLICT DO NOTHING", [uuid4().hex])


def _add_columns(connection: _File) -> None:
    """What a store of an earlier version lacks: its waiting messages do not know what they say (null)."""
    with transaction(connection):
        for table, columns in ADDED.items():
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for column in columns:
                if column not in there:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log; while another connection is at it, SQLite refuses without waiting: we wait."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


@contextmanager
def transaction(connection: Database) -> Iterator[None]:
    """All or nothing of what happens inside."""
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def to_us(at: datetime) -> int:
    """``at`` in microseconds since 1970."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def to_us_or_none(at: datetime | None) -> int | None:
    """The same, where there may be none."""
    return None if at is None else to_us(at)


def from_us(microseconds: int) -> datetime:
    """The aware instant that :func:`to_us` wrote."""
    return _EPOCH + timedelta(microseconds=microseconds)


def from_us_or_none(microseconds: int | None) -> datetime | None:
    """The same, where there may be none."""
    return None if microseconds is None else from_us(microseconds)


def to_set(text: str) -> frozenset[str]:
    """The fingerprints that :func:`from_set` wrote."""
    return frozenset(text[2:-2].split('", "')) if len(text) > 2 else frozenset()  # hexadecimal: nothing is escaped


def from_set(fingerprints: Iterable[str]) -> str:
    """Fingerprints as text, in an order that does not depend on their history."""
    return json.dumps(sorted(fingerprints))


def to_json(mapping: Mapping[str, str] | Mapping[str, str | None]) -> str:
    """A label set, in an order that does not depend on its history."""
    return json.dumps(dict(mapping), sort_keys=True, ensure_ascii=False)
