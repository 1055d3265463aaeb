"""The threads that all attempts of a process share for their heartbeats: one, and up to three more while one hangs."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_THREADS = 4
#: A thread that has had nothing to do for so long ends, in seconds.
IDLE_SECONDS = 30.0


@dataclass(order=True, slots=True)
class Beat:
    """Something to be called again and again until it says no, or is stopped."""

    due: float
    number: int
    call: Callable[[], bool] = field(compare=False)
    interval: float = field(compare=False)
    stopped: bool = field(compare=False, default=False)


class Beats:
    """Calls that are due at intervals. A call that hangs delays no other, unless four hang."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start anew, in a forked child: its parent's attempts are its parent's."""
        self._changed = threading.Condition()
        self._due: list[Beat] = []
        self._numbers = itertools.count()
        self._threads = self._idle = 0

    def start(self, call: Callable[[], bool], interval: float) -> Beat:
        """Call ``call`` each ``interval`` seconds from now on, until it returns False."""
        beat = Beat(time.monotonic() + interval, next(self._numbers), call, interval)
        with self._changed:
            heapq.heappush(self._due, beat)
            self._staff()
            self._changed.notify()
        return beat

    def stop(self, beat: Beat) -> None:
        """Call no more; a call under way is not waited for."""
        with self._changed:
            beat.stopped = True
            if beat in self._due:
                self._due.remove(beat)
                heapq.heapify(self._due)

    def _staff(self) -> None:
        if not self._idle and self._threads < MOST_THREADS:
            self._threads += 1
            threading.Thread(target=self._run, args=(self._changed,), name="sojourn-heartbeat", daemon=True).start()

    def _run(self, changed: threading.Condition) -> None:
        while True:
            with changed:
                beat = self._next(changed)
                if beat is None:
                    self._threads -= 1
                    return
                self._staff()  # this thread may hang in the call
            again = beat.call()
            with changed:
                if again and not beat.stopped:
                    beat.due = max(time.monotonic(), beat.due + beat.interval)
                    heapq.heappush(self._due, beat)

    def _next(self, changed: threading.Condition) -> Beat | None:
        idle_until = time.monotonic() + IDLE_SECONDS
        self._idle += 1
        try:
            while True:
                now = time.monotonic()
                if self._due and self._due[0].due <= now:
                    return heapq.heappop(self._due)
                if not self._due and now >= idle_until:
                    return None
                changed.wait((self._due[0].due if self._due else idle_until) - now)
        finally:
            self._idle -= 1


beats = Beats()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=beats.renew)
