"""What those who are held were told that they may send, remembered for as long as metrics lag behind.

Whether somebody still sends all that it may is judged by counts that are a second old. What it may send changes within
tenths of one where the broker tells how many wait, and doubles where servers are added: held against what it may *now*,
who kept to a few messages a second while the queue drained would seem to have let go, and would flood again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

#: So long is remembered (seconds): older counts are no look.
KEPT_SECONDS = 20.0


@dataclass(slots=True)
class Allowed:
    """Shares of those who are held, and from when on they were (seconds, growing). Pure."""

    _told: deque[tuple[float, Mapping[str, float]]] = field(default_factory=deque)

    def told(self, shares: Mapping[str, float], now: float) -> None:
        """From ``now`` on those of ``shares`` may send so much, and all others whatever they like."""
        if not self._told or self._told[-1][1] != shares:
            self._told.append((now, dict(shares)))
        while len(self._told) > 1 and self._told[1][0] <= now - KEPT_SECONDS:
            self._told.popleft()

    def between(self, start: float, end: float) -> dict[str, tuple[float, float]]:
        """What each might send from ``start`` to ``end`` on average of the time in which it was held at all, and how
        many seconds that was."""
        sums: dict[str, float] = {}
        seconds: dict[str, float] = {}
        until = end
        for at, shares in reversed(self._told):
            there = until - max(at, start)
            if there > 0:
                for name, share in shares.items():
                    sums[name] = sums.get(name, 0.0) + there * share
                    seconds[name] = seconds.get(name, 0.0) + there
            until = min(until, at)
            if until <= start:
                break
        return {name: (total / seconds[name], seconds[name]) for name, total in sums.items()}
