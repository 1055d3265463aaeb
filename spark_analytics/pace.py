"""When a streaming query goes on: once there is something, and not so often that looking is most of it.

A trigger of Spark's lists the table's log and plans a batch whether anything came or not. Here the batch before rests
instead, until the log has an entry with new data: asking for that costs a look at one file's name.
"""

from __future__ import annotations

import json
import threading
import time

from lake.address import LOOK_SECONDS as LOOK_REMOTE_SECONDS
from lake.checksum import checksum
from lake.log import log_entry
from lake.log_watch import LogWatch
from lake.remote import Location, Remote
from spark_analytics.mirrored import MirroredLog

#: How often the log is asked whether there is something new, where nobody tells.
LOOK_SECONDS = 0.02
#: How long a commit's checksum is waited for, and how often it is looked for meanwhile: it comes a millisecond later.
SETTLE_SECONDS, SETTLE_LOOK_SECONDS = 0.05, 0.002
#: How often it is asked whether that entry will never come, because it was cleaned up.
PASSED_SECONDS = 2.0
#: A rest is so many times as long as the work before it, so that small batches take a quarter of a core at most; and no
#: longer than this, so that what comes while batches are slow does not wait much longer for it.
REST, LONGEST_REST = 3.0, 0.4
#: Commits further apart (seconds) do not tell when the next one comes; of others it may be late by so much.
STEADY_SECONDS, LATE_SECONDS = 0.8, 0.05
#: From so many rows on a batch is no small one: there is work to do, and it is done soon.
BUSY_ROWS, BUSY_REST = 1_000, 0.5


class Pace:
    """Between two pieces of work of one query. ``interval`` (seconds) is the least from one beginning to the next."""

    def __init__(self, table: Location | MirroredLog, interval: float, stopping: threading.Event) -> None:
        """``table``: what the query reads."""
        self._mirror = table if isinstance(table, MirroredLog) else None
        self._table = table.folder if isinstance(table, MirroredLog) else table
        asks_store = self._mirror is not None or isinstance(table, Remote)
        self._look_seconds = LOOK_REMOTE_SECONDS if asks_store else LOOK_SECONDS
        self._watch = LogWatch(self._table)
        self._interval = interval
        self._stopping = stopping
        self._began: float | None = None
        self._asks_at = 0.0

    def rest(self, version: int | None, rows: int = 0) -> int | None:
        """Return when work behind some on ``rows`` is due, and there are data in the commits from ``version`` on: the
        newest of them. None where the log does not tell, or all is to stop.

        At once for None, which stands for a batch that left data behind: whoever catches up does not rest.
        """
        now = time.monotonic()
        began, self._began = self._began, now
        if version is None:
            return None
        if began is not None:
            self._stopping.wait(due(now - began, self._interval, rows))
        newest: int | None = None
        while not self._stopping.is_set():
            if self._mirror is not None:
                self._mirror.follow()
            while (news := has_data(log_entry(self._table, version))) is False:
                version += 1
            if news:
                newest = self._newest(version)
                newest = newest if rows >= BUSY_ROWS else self._joined(newest)
            if news:
                self._watch.found()
            if news or self._passed(version):
                break
            self._watch.wait(self._look_seconds, self._stopping)
        self._began = time.monotonic()
        return newest

    def _newest(self, version: int) -> int:
        """The newest commit, ``version`` or behind it."""
        while log_entry(self._table, version + 1).exists():
            version += 1
        return version

    def _joined(self, version: int) -> int:
        """The newest commit, ``version`` or the one after it, if that is worth waiting for."""
        if isinstance(self._table, Remote):
            return version
        try:
            last, before = (log_entry(self._table, number).stat().st_mtime for number in (version, version - 1))
        except FileNotFoundError:
            return version
        if (wait := until_next(time.time() - last, last - before)) <= 0:
            return version
        deadline = time.monotonic() + wait + LATE_SECONDS
        while not (came := log_entry(self._table, version + 1).exists()) and time.monotonic() < deadline:
            if self._stopping.wait(self._look_seconds):
                break
        return version + 1 if came else version

    def settle(self, version: int) -> None:
        """Give the newest commit, ``version``, the moment in which its checksum is written.

        Spark plans a query where it comes between the two, and its first one took 0.9 s.
        """
        if isinstance(self._table, Remote) or not checksum(self._table, version - 1).exists():
            return  # a look at a store costs more; or its writers leave none
        deadline = time.monotonic() + SETTLE_SECONDS
        while not checksum(self._table, version).exists() and time.monotonic() < deadline:
            self._stopping.wait(SETTLE_LOOK_SECONDS)

    def _passed(self, version: int) -> bool:
        """Whether the log has gone on past ``version``, whose entry was cleaned up: Spark says what then."""
        now = time.monotonic()
        if now < self._asks_at:
            return False
        self._asks_at = now + PASSED_SECONDS
        try:
            newest = json.loads(log_entry(self._table, 0).with_name("_last_checkpoint").read_text(encoding="utf-8"))
            return int(newest["version"]) >= version and not log_entry(self._table, version).exists()
        except (OSError, ValueError, KeyError):
            return False


def due(worked: float, interval: float, rows: int = 0) -> float:
    """Seconds to rest after ``worked`` seconds of work on ``rows``."""
    times = REST if rows < BUSY_ROWS else BUSY_REST
    return max(interval - worked, min(times * worked, LONGEST_REST), 0.0)


def until_next(age: float, apart: float) -> float:
    """Seconds for which a batch waits for the next commit, the last being ``age`` old, ``apart`` from the one before.

    A batch that waits has data newer by ``age``, and comes as much later as it waits, which adds half of that to what
    gold's newest is old on average: waiting pays where the next commit is nearer than twice the age of the last.
    """
    wait = apart - age
    return wait if 0 < apart <= STEADY_SECONDS and 0 < wait < 2 * age else 0.0


def has_data(entry: Location) -> bool | None:
    """Whether a commit adds data; None while there is none."""
    try:
        lines = entry.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return any(line.startswith('{"add"') and json.loads(line)["add"].get("dataChange") for line in lines)
