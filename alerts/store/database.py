"""The SQLite file of the alert process: its schema, and how instants and label sets are written into it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from lake.errors import UserError
from lake.files import private_file

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rules (
  rule_group TEXT, rule TEXT, evaluated_to INTEGER NOT NULL, PRIMARY KEY (rule_group, rule));
CREATE TABLE IF NOT EXISTS alerts (
  rule_group TEXT, rule TEXT, fingerprint TEXT, labels TEXT NOT NULL, annotations TEXT NOT NULL, value REAL,
  state TEXT NOT NULL, active_since INTEGER NOT NULL, fired_at INTEGER, kept_since INTEGER, paused INTEGER NOT NULL,
  resolved_at INTEGER, PRIMARY KEY (rule_group, rule, fingerprint));
CREATE TABLE IF NOT EXISTS notified (
  receiver TEXT, group_key TEXT, firing TEXT NOT NULL, resolved TEXT NOT NULL, sent_at INTEGER NOT NULL,
  PRIMARY KEY (receiver, group_key));
CREATE TABLE IF NOT EXISTS decisions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, receiver TEXT NOT NULL, group_key TEXT NOT NULL,
  sent INTEGER NOT NULL, reason TEXT NOT NULL, firing INTEGER NOT NULL, resolved INTEGER NOT NULL, muted TEXT);
CREATE TABLE IF NOT EXISTS outbox (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, receiver TEXT NOT NULL, group_key TEXT NOT NULL,
  status TEXT NOT NULL, alerts INTEGER NOT NULL, data_as_of INTEGER, body TEXT NOT NULL, created_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, next_at INTEGER NOT NULL, firing TEXT, resolved TEXT);
CREATE TABLE IF NOT EXISTS settled (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, receiver TEXT NOT NULL, group_key TEXT NOT NULL,
  firing TEXT NOT NULL, resolved TEXT NOT NULL, at INTEGER NOT NULL, delivered INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_in_order ON outbox (receiver, group_key, sequence);
CREATE TABLE IF NOT EXISTS disabled (receiver TEXT PRIMARY KEY, url TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS receiver_health (
  receiver TEXT PRIMARY KEY, failing_since INTEGER NOT NULL, refused INTEGER NOT NULL, error TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS transitions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, data_as_of INTEGER, rule_group TEXT NOT NULL,
  rule TEXT NOT NULL, fingerprint TEXT NOT NULL, labels TEXT NOT NULL, annotations TEXT NOT NULL,
  from_state TEXT NOT NULL, to_state TEXT NOT NULL, value REAL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, delivery_id TEXT NOT NULL, receiver TEXT NOT NULL,
  group_key TEXT NOT NULL, status TEXT NOT NULL, alerts INTEGER NOT NULL, attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL, status_code INTEGER, error TEXT, duration_seconds REAL, data_as_of INTEGER);
CREATE TABLE IF NOT EXISTS silences (
  id TEXT PRIMARY KEY, matchers TEXT NOT NULL, starts_at INTEGER NOT NULL, ends_at INTEGER NOT NULL,
  created_by TEXT NOT NULL, comment TEXT NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS acknowledgements (
  fingerprint TEXT PRIMARY KEY, by TEXT NOT NULL, comment TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS received (
  fingerprint TEXT PRIMARY KEY, labels TEXT NOT NULL, annotations TEXT NOT NULL, generator_url TEXT NOT NULL,
  starts_at INTEGER NOT NULL, ends_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, who TEXT NOT NULL, peer TEXT NOT NULL,
  what TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL);
"""
#: Columns that tables of earlier versions lack.
_ADDED = {"outbox": ("firing", "resolved"), "decisions": ("muted",)}
#: How long a connection waits for another's lock.
_BUSY_SECONDS = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def connect(path: Path, *, shared: bool = False) -> sqlite3.Connection:
    """A connection to the file at ``path``, made if need be.

    One connection belongs to one thread; one that is ``shared`` to whoever holds its lock.
    """
    try:
        connection = sqlite3.connect(
            private_file(path), timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=not shared
        )
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        _add_columns(connection)
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('store_id', ?)", [uuid4().hex])
    except (OSError, sqlite3.Error) as error:
        raise UserError(
            f"{path} cannot be used: {error}",
            "move the file away: alerts then start anew, and fire again if they still hold",
        ) from error
    return connection


def _add_columns(connection: sqlite3.Connection) -> None:
    """What a store of an earlier version lacks: its waiting messages do not know what they say (null)."""
    with transaction(connection):
        for table, columns in _ADDED.items():
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
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing of what happens inside."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


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


def to_json(mapping: Mapping[str, str]) -> str:
    """A label set, in an order that does not depend on its history."""
    return json.dumps(dict(mapping), sort_keys=True, ensure_ascii=False)
