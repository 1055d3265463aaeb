"""PostgreSQL as the alert process's store: for more than one process, of which one evaluates."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any, cast

import psycopg
from psycopg import conninfo

from alerts.store.database import ADDED, Database, Rows, StoreError, name_store
from alerts.store.lease import SECONDS, TABLE, Connection, Lease
from alerts.store.schema import SCHEMA
from lake.errors import UserError

log = logging.getLogger(__name__)

#: One process at a time makes the tables: the number of an advisory lock, of no other meaning.
_MAKING = 4_108_113
_CONNECT_SECONDS = 5
#: After so long (seconds) without the store a process looks again whether it answers.
_AGAIN = 1.0


class Postgres:
    """The PostgreSQL at ``url``, one database (or schema) a lake. UserError for what is no such URL.

    Whoever connects otherwise than to read must hold the lease, which lasts ``seconds``.
    """

    def __init__(self, url: str, *, seconds: float = SECONDS) -> None:
        try:
            if not url.startswith(("postgresql://", "postgres://")):
                raise psycopg.ProgrammingError
            conninfo.conninfo_to_dict(url)
        except psycopg.Error:  # what it says may hold the password
            raise UserError("the alerts' store is no URL of a PostgreSQL", "postgresql://USER@HOST/DATABASE") from None
        self._url = url
        self.lease = Lease(self._open, seconds)

    def connect(self, *, shared: bool = False) -> Database:
        """A connection that writes as long as the lease is held."""
        return _Connection(self._open(), self.lease)

    @contextmanager
    def read(self) -> Iterator[Database]:
        """A connection for a look, whoever evaluates. UserError if it cannot be had."""
        try:
            connection = self._open()
            connection.execute("SET default_transaction_read_only = on")
        except (StoreError, psycopg.Error) as error:
            raise UserError(str(error), "see that PostgreSQL runs, and what its URL says") from error
        with closing(_Connection(connection, None)) as database:
            yield cast(Database, database)

    def in_turn(
        self,
        work: Callable[[], None],
        stop: threading.Event,
        *,
        once: bool = False,
        standing_by: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Do ``work`` as long as this process evaluates, and stand by otherwise, until ``stop`` is set or it returns.

        Within ``standing_by`` it stands by. UserError if PostgreSQL cannot be used from the start.
        """
        reached = False
        while not stop.is_set():
            with ExitStack() as meanwhile:
                try:
                    self.make()
                    reached = True
                    meanwhile.enter_context(standing_by())
                    with self.lease.held(stop) as held:
                        meanwhile.close()
                        if held:
                            log.info("this process evaluates from now on")
                            work()
                    return
                except StoreError as error:
                    if once or not reached:
                        raise UserError(str(error), "see that PostgreSQL runs, and what its URL says") from error
                    log.error("%s: standing by", error)
                    meanwhile.close()
                    with standing_by():
                        stop.wait(_AGAIN)

    def make(self) -> None:
        """Make the tables, where they are not there yet. StoreError."""
        try:
            with self._open() as connection:
                connection.execute("BEGIN")
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKING])
                for statement in (*_translated_schema(), *filter(str.strip, TABLE.split(";"))):
                    connection.execute(statement.encode())
                _add_columns(connection)
                name_store(_Connection(connection, None))
                connection.execute("COMMIT")
        except psycopg.Error as error:
            raise StoreError(f"the store's tables cannot be made: {error}") from error

    def _open(self) -> Connection:
        # A holder that hangs in a transaction, or whose machine is gone, must not keep others from taking over.
        limit = f"{self.lease.seconds * 1000:.0f}"
        settings = {
            "idle_in_transaction_session_timeout": limit,
            "tcp_user_timeout": limit,
            "tcp_keepalives_idle": "2",
            "tcp_keepalives_interval": "1",
            "tcp_keepalives_count": "3",
        }
        try:
            given: dict[str, Any] = dict(conninfo.conninfo_to_dict(self._url))
            options = " ".join(f"-c {name}={value}" for name, value in settings.items())
            given |= {"options": f"{given.get('options') or ''} {options}", "application_name": "sojourn-alerts"}
            given = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": 10_000, **given}
            return psycopg.connect(conninfo.make_conninfo(**given), autocommit=True)
        except psycopg.Error as error:
            raise StoreError(f"the store cannot be reached: {error}") from error


class _Connection:
    """Our SQL, said to PostgreSQL; all that goes wrong is a StoreError. Without a ``lease`` it is bound to none."""

    def __init__(self, connection: Connection, lease: Lease | None) -> None:
        self._connection, self._lease = connection, lease
        self._writing = False

    def begin(self) -> None:
        with self._told():
            if self._lease is None:
                self._connection.execute("BEGIN")
            else:
                self._lease.enter(self._connection)
                self._writing = True

    def commit(self) -> None:
        began, done = time.monotonic(), False
        try:
            with self._told():
                self._connection.execute("COMMIT")
                done = True
        finally:
            self._left(began if done else None)

    def rollback(self) -> None:
        with suppress(psycopg.Error):  # the connection is gone, and the transaction with it
            self._connection.execute("ROLLBACK")
        self._left(None)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        with self._told():
            return self._connection.execute(_translated(sql), [_sayable(value) for value in parameters])

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        with self._told():
            if rows := [[_sayable(value) for value in row] for row in parameters]:
                self._connection.cursor().executemany(_translated(sql), rows)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        if self._lease is not None and not self._writing:
            self._lease.check()
        try:
            yield
        except psycopg.Error as error:
            if self._lease is not None and self._connection.closed:
                self._lease.lose()  # the whole process begins anew, with new connections
            raise StoreError(f"the store cannot be used: {error}") from error

    def _left(self, began: float | None) -> None:
        if self._lease is not None and self._writing:
            self._writing = False
            self._lease.leave(began)


def _add_columns(connection: Connection) -> None:
    """What a store of an earlier version lacks; asked first, as adding waits for all who use the table."""
    for table, columns in ADDED.items():
        rows = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND NOT attisdropped", [table]
        )
        there = {row[0] for row in rows}
        for column in columns:
            if column not in there:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT".encode())


@lru_cache(maxsize=200)
def _translated(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _translated_schema() -> list[str]:
    words = {
        "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "INTEGER": "BIGINT",
        "REAL": "DOUBLE PRECISION",
    }
    sql = re.sub("|".join(words), lambda found: words[found[0]], SCHEMA)
    return [statement for statement in sql.split(";") if statement.strip()]


def _sayable(value: Any) -> Any:
    """PostgreSQL's text holds no NUL."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
