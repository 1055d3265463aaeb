"""The controller's memory in SQLite: limits in force, the journal's outbox, what operators revoked.

Every change of a limit and the journal row that tells of it are one transaction: after a crash at any instant both
are there or neither is.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from alerts.control.active_limit import ActiveLimit, Entry, Key, RuleKey, Target
from alerts.laws.limits import Limit, Watch
from alerts.laws.shadow import Shadow
from lake.clock import Epoch, apart
from lake.errors import SojournError, UserError
from lake.files import private_file, private_folder

log = logging.getLogger(__name__)

FILE_NAME = "control.sqlite"
#: Journal rows kept here for the API, once they are in the lake.
KEPT_ENTRIES = 1000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS standings (
  policy TEXT, broker TEXT, queue TEXT, tenant TEXT, document TEXT NOT NULL,
  PRIMARY KEY (policy, broker, queue, tenant));
CREATE TABLE IF NOT EXISTS journal (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT NOT NULL, flushed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS outbox ON journal (seq) WHERE flushed = 0;
CREATE TABLE IF NOT EXISTS blocks (
  policy TEXT, broker TEXT, queue TEXT, tenant TEXT, until REAL NOT NULL,
  PRIMARY KEY (policy, broker, queue, tenant));
"""


class StateError(SojournError):
    """The controller's memory could not be read or written, as when the disk is full."""


class State:
    """The store below ``folder``. Safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.path = private_folder(folder) / FILE_NAME
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(private_file(self.path), check_same_thread=False, timeout=10)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('instance', ?)", (uuid.uuid4().hex,))
            self._db.commit()
            (self.instance,) = self._db.execute("SELECT value FROM meta WHERE name = 'instance'").fetchone()
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(
                f"the controller's state {self.path} cannot be used: {error}",
                "move the file away: limits in force end with their leases, the journal stays in the lake",
            ) from error

    def active_limits(self) -> dict[Key, ActiveLimit]:
        """All limits in force or on trial."""
        with self._reading() as db:
            rows = db.execute("SELECT document FROM standings").fetchall()
        found: dict[Key, ActiveLimit] = {}
        for (document,) in rows:
            try:
                active = _active_limit(json.loads(document))
            except (TypeError, KeyError, ValueError) as error:
                log.warning("a limit that another version of Sojourn left is not taken over: %s", error)
            else:
                found[active.key] = active
        return found

    def commit(
        self,
        changes: Mapping[Key, ActiveLimit | None],
        entries: Iterable[Entry],
        blocks: Mapping[Key, float] | None = None,
        *,
        ahead: timedelta | None = None,
        epoch: Epoch | None = None,
    ) -> None:
        """Put ``changes`` (None = gone), their journal ``entries`` and ``blocks`` (until when) down, all or nothing.

        If it is news: how far the wall clock is ``ahead`` of the one of these instants, and that one's ``epoch``.
        """
        clock = {} if ahead is None else {"clock_ahead": str(ahead.total_seconds())}
        if epoch is not None:
            clock |= {"clock_boot": epoch.boot, "clock_epoch": epoch.at.isoformat()}
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", clock.items())
            for key, active in changes.items():
                if active is None:
                    db.execute(
                        "DELETE FROM standings WHERE policy = ? AND broker = ? AND queue = ? AND tenant = ?",
                        _columns(key),
                    )
                else:
                    document = json.dumps(dataclasses.asdict(active))
                    db.execute("INSERT OR REPLACE INTO standings VALUES (?, ?, ?, ?, ?)", (*_columns(key), document))
            for entry in entries:
                document = json.dumps(dataclasses.asdict(entry), default=datetime.isoformat)
                db.execute("INSERT INTO journal (document) VALUES (?)", (document,))
            for key, until in (blocks or {}).items():
                db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)", (*_columns(key), until))

    def shift(self, epoch: Epoch) -> timedelta:
        """By how much the instants here move to be on the clock of ``epoch``.

        Where that cannot be told: by how far the wall clock was ahead of them, when that was last written down.
        """
        with self._reading() as db:
            kept = dict(db.execute("SELECT name, value FROM meta WHERE name LIKE 'clock_%'").fetchall())
        boot, at = kept.get("clock_boot"), kept.get("clock_epoch")
        before = Epoch(boot, datetime.fromisoformat(at)) if boot and at else None
        by = apart(before, epoch)
        return timedelta(seconds=float(kept.get("clock_ahead", 0))) if by is None else by

    def blocked(self) -> dict[Key, float]:
        """What operators revoked, and until when it stays off (unix seconds)."""
        with self._reading() as db:
            rows = db.execute("SELECT policy, broker, queue, tenant, until FROM blocks").fetchall()
        return {Key(policy, Target(broker, queue, tenant)): until for policy, broker, queue, tenant, until in rows}

    def forget_blocks(self, before: float) -> None:
        """Forget the blocks that ended ``before``."""
        with self._writing() as db:
            db.execute("DELETE FROM blocks WHERE until <= ?", (before,))

    def outbox(self, limit: int) -> list[tuple[int, Entry]]:
        """Journal rows that are not in the lake yet, oldest first, with their numbers."""
        return self._entries("WHERE flushed = 0 ORDER BY seq LIMIT ?", limit)

    def outbox_length(self) -> int:
        """How many journal rows wait for the lake."""
        with self._reading() as db:
            (count,) = db.execute("SELECT COUNT(*) FROM journal WHERE flushed = 0").fetchone()
        return int(count)

    def flushed(self, up_to: int) -> None:
        """Note that the lake has all rows up to number ``up_to``, and forget old ones."""
        with self._writing() as db:
            db.execute("UPDATE journal SET flushed = 1 WHERE flushed = 0 AND seq <= ?", (up_to,))
            db.execute(
                "DELETE FROM journal WHERE flushed = 1 AND seq <= (SELECT MAX(seq) FROM journal) - ?", (KEPT_ENTRIES,)
            )

    def recent(self, limit: int) -> list[Entry]:
        """The newest journal rows, newest first."""
        return [entry for _, entry in self._entries("ORDER BY seq DESC LIMIT ?", min(limit, KEPT_ENTRIES))]

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise StateError(f"the controller's state {self.path} cannot be used: {error}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing and a StateError."""
        with self._reading() as db, db:
            yield db

    def _entries(self, clause: str, limit: int) -> list[tuple[int, Entry]]:
        with self._reading() as db:
            rows = db.execute(f"SELECT seq, document FROM journal {clause}", (limit,)).fetchall()
        return [(seq, _entry(json.loads(document))) for seq, document in rows]


def _columns(key: Key) -> tuple[str, str, str, str]:
    return key.policy, key.target.broker, key.target.queue, key.target.tenant


def _active_limit(document: dict[str, Any]) -> ActiveLimit:
    key, limit, rule = document["key"], document["limit"], document["rule"]
    if isinstance(rule, str):  # written before groups counted: its lease runs out unless the alert fires on
        rule = {"group": "", "name": rule}
    watch = Watch(**limit["watch"]) if limit["watch"] else None
    shadow = document.get("shadow")  # earlier versions had none
    return ActiveLimit(
        **document
        | {
            "key": Key(key["policy"], Target(**key["target"])),
            "rule": RuleKey(**rule),
            "limit": Limit(**limit | {"watch": watch}),
            "shadow": Shadow(**shadow) if shadow else None,
        },
    )


def _entry(document: dict[str, Any]) -> Entry:
    until = document["valid_until"]
    at = datetime.fromisoformat(document["at"])
    return Entry(**document | {"at": at, "valid_until": datetime.fromisoformat(until) if until else None})
