"""How often a cycle can be repeated: one that cannot keep its interval is given a longer one, until it can again."""

from __future__ import annotations

import math
import statistics
from collections import deque

#: So many cycles in a row are judged together: one late cycle is no reason.
_CYCLES = 5
#: A cycle may take this share of its interval; the rest is the broker's and the machine's.
_SHARE = 0.5


class Cadence:
    """The interval of one collector: ``wanted`` seconds, or the least multiple of them of which half is enough."""

    def __init__(self, wanted: float) -> None:
        self._wanted = wanted
        self.interval = wanted
        self._took: deque[float] = deque(maxlen=_CYCLES)

    def took(self, seconds: float) -> float | None:
        """Note how long a cycle took; returns what cycles take where that has just changed the interval."""
        self._took.append(seconds)
        if len(self._took) < _CYCLES or self._wanted <= 0:
            return None
        usual = statistics.median(self._took)
        if usual > self.interval:
            return self._change(usual)
        longest = max(self._took)
        if self._multiple(longest) < self.interval:
            return self._change(longest)
        return None

    def _multiple(self, seconds: float) -> float:
        return (
            self._wanted * max(1, math.ceil(seconds / _SHARE / self._wanted))
            if seconds > self._wanted
            else self._wanted
        )

    def _change(self, seconds: float) -> float:
        self.interval = self._multiple(seconds)
        self._took.clear()
        return seconds
