"""The board on which the limits in force stand, for whoever serves them; those who wait are woken by a change."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ServedLimit:
    """One limit as producers get it: ``rate`` in messages/s, ``burst`` in messages."""

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float
    valid_until: datetime
    reason: str
    action_id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All limits at one version. Versions grow, over restarts as well."""

    version: int
    limits: tuple[ServedLimit, ...]


class Board:
    """Holds the newest :class:`Snapshot`. ``publish`` may come from any thread, waiting is for asyncio."""

    def __init__(self, max_waiters: int = 1000) -> None:
        self._lock = threading.Lock()
        self._max_waiters = max_waiters
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._snapshot = Snapshot(time.time_ns() // 1000, ())
        self.closed = False

    @property
    def snapshot(self) -> Snapshot:
        """What is in force now."""
        return self._snapshot

    def publish(self, limits: tuple[ServedLimit, ...]) -> None:
        """Put ``limits`` in place of all before."""
        with self._lock:
            if limits == self._snapshot.limits:
                return
            self._snapshot = Snapshot(max(self._snapshot.version + 1, time.time_ns() // 1000), limits)
            self._wake()

    async def changed(self, version: int, seconds: float) -> bool:
        """Wait until the version is another than ``version``, at most ``seconds``.

        False at once where too many wait already: the caller should come back later.
        """
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._snapshot.version != version or self.closed:
                return True
            if len(self._waiters) >= self._max_waiters:
                return False
            self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter[1].wait(), seconds)
        finally:
            with self._lock:
                self._waiters.discard(waiter)
        return True

    def close(self) -> None:
        """Let all who wait go: a server that stops must not wait for them."""
        with self._lock:
            self.closed = True
            self._wake()

    def _wake(self) -> None:
        for loop, event in self._waiters:
            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(event.set)
