"""Who evaluates: one of several alert processes over one PostgreSQL, by a lease that everything it writes is bound to.

The lease is a row with an epoch, which grows with every holder, and a beat, which its holder raises several times a
lease. Whoever has seen the same beat for a whole lease by a clock of its own takes it over, with one statement that
succeeds only if the beat still stands: no clocks are compared, and none that is set matters. Each transaction of a
holder begins by raising the beat where the epoch is still its own. That is the fence – it fails once another has taken
over –, it lets transactions follow one another as in SQLite, and nobody takes over between its first statement and its
last.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from alerts.store.database import StoreError

log = logging.getLogger(__name__)

#: After so long (seconds) without a sign of life another takes over: less than the 10 s in which pages must go on.
SECONDS = 5.0
#: How often within it the holder gives a sign of life, and how often others look for one.
BEATS, LOOKS = 5, 10

Connection = psycopg.Connection[tuple[Any, ...]]
TABLE = """
CREATE TABLE IF NOT EXISTS lease (
  one BIGINT PRIMARY KEY CHECK (one = 1), holder TEXT, epoch BIGINT NOT NULL, beat BIGINT NOT NULL);
INSERT INTO lease VALUES (1, NULL, 0, 0) ON CONFLICT DO NOTHING;
"""
_TAKE = (
    "UPDATE lease SET holder = %s, epoch = epoch + 1, beat = beat + 1 WHERE epoch = %s AND beat = %s RETURNING epoch"
)
_BEAT = "UPDATE lease SET beat = beat + 1 WHERE epoch = %s"
_RELEASE = "UPDATE lease SET holder = NULL, beat = beat + 1 WHERE epoch = %s"


class LeaseLost(StoreError):
    """Another process evaluates, or may by now."""


class Lease:
    """The right to write. Safe to share between threads; ``open`` makes a connection of its own for it."""

    def __init__(self, open: Callable[[], Connection], seconds: float = SECONDS) -> None:
        self._open, self.seconds = open, seconds
        self._lock = threading.Lock()
        self._epoch = 0
        self._until = 0.0  # monotonic seconds
        self._writing = 0
        self._lost = True

    @contextmanager
    def held(self, stop: threading.Event) -> Iterator[bool]:
        """Wait until this process evaluates, and let go at the end; False if ``stop`` was set before. StoreError."""
        with self._open() as connection:
            taken = self._take(connection, stop)
        if not taken:
            yield False
            return
        done = threading.Event()
        thread = threading.Thread(target=self._renew, args=(self._epoch, done), name="alert-lease", daemon=True)
        thread.start()
        try:
            yield True
        finally:
            done.set()
            thread.join(self.seconds)
            self.lose()

    def check(self) -> None:
        """LeaseLost unless this process evaluates, and nobody else can by now."""
        with self._lock:
            if self._lost or (time.monotonic() >= self._until and not self._writing):
                raise LeaseLost("another process evaluates, or may by now")

    def lose(self) -> None:
        """This process evaluates no more: it has ended, or has lost its connection."""
        self._lost = True

    def enter(self, connection: Connection) -> None:
        """Begin ``connection``'s transaction, in which nobody else writes or takes over. LeaseLost."""
        self.check()
        connection.execute("BEGIN")
        if connection.execute(_BEAT, [self._epoch]).rowcount != 1:
            self.lose()
            connection.execute("ROLLBACK")
            raise LeaseLost("another process evaluates")
        with self._lock:
            self._writing += 1

    def leave(self, began: float | None) -> None:
        """That transaction is over; it was committed after ``began`` (monotonic seconds), or not at all (None)."""
        with self._lock:
            self._writing -= 1
            if began is not None:
                self._until = max(self._until, began + self.seconds)

    def _take(self, connection: Connection, stop: threading.Event) -> bool:
        seen, since = None, 0.0
        while not stop.is_set():
            try:
                row = connection.execute("SELECT holder, epoch, beat FROM lease").fetchone()
                assert row is not None
                holder, epoch, beat = row
                if seen is None and holder is not None:
                    log.info("standing by: %s evaluates", holder)
                now = time.monotonic()
                if (epoch, beat) != seen:
                    seen, since = (epoch, beat), now
                if holder is None or now - since >= self.seconds:
                    me = f"{socket.gethostname()}, process {os.getpid()}"
                    if taken := connection.execute(_TAKE, [me, epoch, beat]).fetchone():
                        self._epoch, self._until, self._lost = taken[0], now + self.seconds, False
                        return True
            except psycopg.Error as error:
                raise StoreError(f"the store does not answer: {error}") from error
            stop.wait(self.seconds / LOOKS)
        return False

    def _renew(self, epoch: int, done: threading.Event) -> None:
        """Give signs of life until ``done``, then let go. It may outlast its turn: it knows of ``epoch`` alone."""
        connection: Connection | None = None
        while True:
            try:
                connection = connection or self._open()
                if done.is_set():
                    connection.execute(_RELEASE, [epoch])
                    break
                began = time.monotonic()
                if connection.execute(_BEAT, [epoch]).rowcount != 1:
                    if epoch == self._epoch:
                        self.lose()
                    break
                with self._lock:
                    if epoch == self._epoch:
                        self._until = max(self._until, began + self.seconds)
            except (psycopg.Error, StoreError) as error:
                log.warning("the lease is not renewed: %s", error)
                connection = None
                if done.is_set():
                    break  # it runs out
            done.wait(self.seconds / BEATS)
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
