"""What has been recorded and not yet sent: bounded, and summarised where the collector is slower than the application.

Three levels, from the application's thread outwards. Up to ``capacity`` events stay single. Above it all but the marks
(:func:`sojourn.client.events.is_mark`) are counted into summaries. Marks stay single up to half the capacity; beyond
that they too are summarised, and counted apart. The summaries have a bound of their own and coarsen at it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sojourn.client.events import Event, Raw, is_mark, judge
from sojourn.client.summary import Rollup

#: How many events a call that finds the buffer full summarises: about half a millisecond, for one call in as many.
SLICE = 128


class Buffer:
    """Events of all threads, taken out by one sender."""

    def __init__(self, capacity: int, broker: str) -> None:
        self.capacity = capacity
        self._relief = capacity * 3 // 4  # the sender makes room from here on, so that calls seldom must
        self._limit = capacity * 5 // 4  # where a call waits for its turn to make room
        self._most_marks = capacity // 2
        self._broker = broker
        #: Appended to by the application's threads, without a lock: an append is atomic.
        self.events: deque[Raw] = deque()
        self._marks: deque[Raw] = deque()
        self.renew()

    def renew(self) -> None:
        """Forget everything: what a forked child inherited is its parent's to send."""
        self._lock = threading.Lock()
        self.events.clear()
        self._marks.clear()
        self._rollup = Rollup(self.capacity)
        self.conflated = self.conflated_marks = self.unsound = 0

    def __len__(self) -> int:
        """How many events wait, single or in summaries."""
        with self._lock:
            return len(self.events) + len(self._marks) + self._rollup.events

    @property
    def level(self) -> int:
        """How far the summaries had to coarsen; 0 = not at all."""
        return self._rollup.level

    def full(self) -> None:
        """Called by a call that found the buffer full: make room, or let another thread that is at it."""
        if not self._lock.acquire(blocking=False):
            if len(self.events) <= self._limit:
                return
            self._lock.acquire()
        try:
            self._summarise(SLICE)
        finally:
            self._lock.release()

    def relieve(self) -> bool:
        """Summarise one slice if there is little room left; whether there was."""
        if len(self.events) <= self._relief:
            return False
        with self._lock:
            self._summarise(SLICE)
        return True

    def take(self, most: int) -> list[Raw]:
        """Take out the oldest single events, at most ``most``: marks that were set apart come first."""
        taken: list[Raw] = []
        for source in (self._marks, self.events):
            with contextlib.suppress(IndexError):
                while len(taken) < most:
                    taken.append(source.popleft())
        return taken

    def take_summaries(self, most: int) -> tuple[list[dict[str, Any]], int]:
        """Take out the oldest summaries, at most ``most``, as rows; and how many events they stand for."""
        with self._lock:
            return self._rollup.take(most)

    def judge(self, raw: Raw) -> Event:
        """``raw`` in the types of the wire; what was of no use in it is counted."""
        try:
            event, sound = judge(raw, self._broker)
        except Exception:  # an object whose str() raises, say: what is left is that something happened
            event, sound = judge((raw[0], None, None, None, *[None] * 4, time.time_ns(), *[None] * 4), self._broker)
        if not sound:
            self.unsound += 1
        return event

    def count(self, events: list[Event]) -> None:
        """Count events that cannot be sent by themselves into the summaries."""
        with self._lock:
            for event in events:
                self._rollup.add(event)
            self.conflated += len(events)

    def _summarise(self, most: int) -> None:
        pop: Callable[[], Raw] = self.events.popleft
        for _ in range(most):
            try:
                raw = pop()
            except IndexError:
                return
            mark = is_mark(raw)
            if mark and len(self._marks) < self._most_marks:
                self._marks.append(raw)
                continue
            self._rollup.add(self.judge(raw))
            self.conflated += 1
            self.conflated_marks += mark
