"""The newest seconds of ages of one broker in memory, each whole: what comes for them is added to what came before."""

from __future__ import annotations

import numpy as np

from spark_analytics.fold.arrays import Array, distinct, run_starts
from spark_analytics.state.buckets import Buckets, added_up, found, slots_of, starts_of, together

#: So many seconds are held at most.
MOST_SECONDS = 60


class Recent:
    """Buckets of single seconds. What is of :attr:`floor` or before is not held, nor what comes for it."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._seconds: dict[int, Buckets] = {}
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def add(self, came: Buckets) -> None:
        """Add buckets of seconds after the floor."""
        seconds = distinct(starts_of(came.code)).tolist()
        before = [self._seconds[second] for second in seconds if second in self._seconds]
        self._held -= sum(len(each.code) for each in before)
        sums = added_up([*before, came])
        for mine in sums.split(run_starts(starts_of(sums.code))) if seconds else ():
            self._seconds[int(starts_of(mine.code[:1])[0])] = mine
        self._held += len(sums.code)

    def rise(self, floor: int) -> None:
        """Let go of ``floor`` and what is before."""
        self.floor = max(self.floor, floor)
        for second in [second for second in self._seconds if second <= self.floor]:
            self._held -= len(self._seconds.pop(second).code)

    def prune(self, most: int) -> None:
        """Let go of the oldest seconds until there are ``most`` buckets, and no more seconds than MOST_SECONDS."""
        for second in sorted(self._seconds):
            if self._held <= most and len(self._seconds) <= MOST_SECONDS:
                break
            self.rise(second)

    def at(self, codes: Array) -> Buckets:
        """Those of ``codes``, which are in order, that there are."""
        parts = []
        for mine in np.split(codes, run_starts(starts_of(codes))[1:]) if len(codes) else ():
            if (held := self._seconds.get(int(starts_of(mine[:1])[0]))) is not None:
                parts.append(held if np.array_equal(mine, held.code) else held.at(found(held, mine)[0]))
        return together(parts)

    def newest(self, slot: int, before: int) -> int:
        """The newest second before ``before`` that has a bucket of ``slot``; −1: none."""
        with_it = (s for s, held in self._seconds.items() if s < before and (slots_of(held.code) == slot).any())
        return max(with_it, default=-1)
