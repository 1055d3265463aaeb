"""What we changed at other people's servers, put down before it is done: after a crash at any instant it can be undone.

Shared by the alert process and the reaper, which outlives it. Deadlines are on a clock that both have and nobody sets
(:mod:`actuators.boot`); what was put down before the machine was started again is overdue.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from actuators import boot
from actuators.base import ActuatorSettings, Demand
from actuators.registry import parsed
from lake.errors import SojournError
from lake.files import private, private_file, private_folder

FILE_NAME = "actuators.sqlite"
#: What was ended and no journal has taken up yet: so many rows, then the oldest are dropped.
MOST_NEWS = 1000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS held (
  actuator TEXT, place TEXT, before TEXT, after TEXT NOT NULL, previous TEXT, pending INTEGER NOT NULL,
  deadline REAL NOT NULL, boot TEXT NOT NULL, demand TEXT NOT NULL, PRIMARY KEY (actuator, place));
CREATE TABLE IF NOT EXISTS settings (actuator TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS news (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, actuator TEXT NOT NULL, place TEXT NOT NULL, demand TEXT NOT NULL,
  kind TEXT NOT NULL, said TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Held:
    """One setting that we changed: ``before`` is put back, ``after`` and ``previous`` are ours to change.

    ``pending``: it was not read back yet, so that it may not have been written.
    """

    actuator: str
    place: str
    before: str | None
    after: str
    previous: str | None
    pending: bool
    deadline: float
    demand: Demand


@dataclass(frozen=True, slots=True)
class News:
    """A setting that was given up without a journal's knowing: what became of it, and why."""

    actuator: str
    place: str
    demand: Demand
    kind: str
    said: str


class UndoLog:
    """Keeps in ``folder`` what was there before each change of ours. Safe to share between threads and processes."""

    def __init__(
        self, folder: Path, now: Callable[[], float] = boot.seconds, booted: Callable[[], str] = boot.identity
    ) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder = private_folder(folder)
        self.now, self._booted = now, booted
        self._lock = threading.Lock()
        try:
            path = private_file(self.folder / FILE_NAME)
            self._db = sqlite3.connect(path, check_same_thread=False, timeout=10, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise SojournError(f"what actuators changed cannot be put down in {folder}: {error}") from error

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    @contextmanager
    def alone(self, actuator: str) -> Iterator[None]:
        """Nobody else, of this process or another, changes what ``actuator`` holds meanwhile."""
        path = self.folder / f"actuator-{actuator}.lock"
        with open(path, "a", encoding="utf-8", opener=private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def remember(self, settings: ActuatorSettings) -> None:
        """How to reach an actuator's server; secrets are references there."""
        self._do("INSERT OR REPLACE INTO settings VALUES (?, ?)", settings.name, settings.model_dump_json())

    def forget(self, actuator: str) -> None:
        """How to reach it is needed no more, unless something is held there."""
        self._do("DELETE FROM settings WHERE actuator = ? AND actuator NOT IN (SELECT actuator FROM held)", actuator)

    def settings(self) -> dict[str, ActuatorSettings]:
        """Every actuator that was remembered, by name; one that this version does not know is left out."""
        found = {}
        for name, document in self._do("SELECT actuator, document FROM settings"):
            try:
                found[name] = parsed(document)
            except ValueError:
                continue
        return found

    def put(self, held: Held) -> None:
        """Put down what is about to be changed, or that it has been."""
        row = (held.actuator, held.place, held.before, held.after, held.previous, held.pending, held.deadline)
        self._do(
            "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *row,
            self._booted(),
            held.demand.document(),
        )

    def get(self, actuator: str, place: str) -> Held | None:
        """What is held there."""
        return next((one for one in self.held(actuator) if one.place == place), None)

    def held(self, actuator: str | None = None) -> list[Held]:
        """All that is held, by one actuator or any; what an earlier start of the machine left is overdue."""
        columns = "actuator, place, before, after, previous, pending, deadline, boot, demand"
        rows = self._do(f"SELECT {columns} FROM held WHERE ? IS NULL OR actuator = ? ORDER BY 1, 2", actuator, actuator)
        now = self._booted()
        return [
            Held(name, place, before, after, previous, bool(pending), until if start == now else 0.0, Demand.of(demand))
            for name, place, before, after, previous, pending, until, start, demand in rows
        ]

    def drop(self, held: Held) -> None:
        """It is held no more."""
        self._do("DELETE FROM held WHERE actuator = ? AND place = ?", held.actuator, held.place)

    def tell(self, held: Held, kind: str, said: str) -> None:
        """Leave news of ``held`` for the journal."""
        self._do(
            "INSERT INTO news (actuator, place, demand, kind, said) VALUES (?, ?, ?, ?, ?)",
            *(held.actuator, held.place, held.demand.document(), kind, said),
        )
        self._do("DELETE FROM news WHERE seq <= (SELECT MAX(seq) FROM news) - ?", MOST_NEWS)

    def news(self, actuator: str) -> list[News]:
        """What was left for the journal of one actuator, the oldest first; it is told once."""
        rows = self._do(
            "DELETE FROM news WHERE actuator = ? RETURNING seq, actuator, place, demand, kind, said", actuator
        )
        return [News(row[1], row[2], Demand.of(row[3]), row[4], row[5]) for row in sorted(rows)]

    def _do(self, statement: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            try:
                return self._db.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise SojournError(f"what actuators changed cannot be put down: {error}") from error


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file at ``path``."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
