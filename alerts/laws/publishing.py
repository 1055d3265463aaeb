"""Whether what a consumer publishes to is congested, told by its own publishing alone: median latency and errors.

Each consumer keeps its statistics and its throttle for itself, no two agree on anything; priorities lie in how far each
yields (:mod:`alerts.laws.aimd`). Source: Zalando engineering, "Enhancing Distributed System Load Shedding with TCP
Congestion Control Algorithm", April 2024: a statistics collector (P50 of publish latency, exceptions), a congestion
detector and a throttle for each consumer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median

from alerts.laws import aimd
from alerts.laws.bounds import Bounds


@dataclass(frozen=True, slots=True)
class Terms:
    """What counts as congested: a median above ``most_seconds``, or more than ``most_errors`` of the publishes failed,
    over ``window_seconds`` in which at least ``least`` ended. ``priority`` is a key of ``aimd.PRIORITIES``."""

    priority: str
    bounds: Bounds
    most_seconds: float = 0.1
    most_errors: float = 0.05
    window_seconds: float = 5.0
    least: int = 10


@dataclass(slots=True)
class Statistics:
    """What became of a consumer's publishes lately: (when, seconds, whether it failed). Memory is the window's."""

    window_seconds: float
    _ended: deque[tuple[float, float, bool]] = field(default_factory=deque)

    def add(self, now: float, seconds: float, *, failed: bool = False) -> None:
        """A publish ended at ``now``."""
        self._ended.append((now, seconds, failed))

    def seen(self, now: float) -> tuple[int, float, float]:
        """How many ended within the window before ``now``, their median (seconds) and the part that failed."""
        while self._ended and self._ended[0][0] <= now - self.window_seconds:
            self._ended.popleft()
        count = len(self._ended)
        if not count:
            return 0, 0.0, 0.0
        return count, median(one[1] for one in self._ended), sum(one[2] for one in self._ended) / count


@dataclass(frozen=True, slots=True)
class State:
    """The rate at which it may publish (messages/s), and since when."""

    rate: float
    changed_at: float = float("-inf")


def step(terms: Terms, state: State, statistics: Statistics, now: float) -> tuple[State, str]:
    """The rate after a look at ``now``, at most one change a window, so that it is judged by what came after it."""
    count, middle, failed = statistics.seen(now)
    if count < terms.least:
        return state, f"{count} publishes ended: too few to say anything"
    if now - state.changed_at < terms.window_seconds:
        return state, "the last change has not had its time to act"
    congested = middle > terms.most_seconds or failed > terms.most_errors
    found = aimd.adapt(state.rate, congested=congested, priority=terms.priority, bounds=terms.bounds)
    why = f"half of the publishes took {middle * 1e3:.0f} ms or more, {failed:.0%} failed: {found.reason}"
    return replace(state, rate=found.limit, changed_at=now), why
