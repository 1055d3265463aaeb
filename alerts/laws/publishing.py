"""Whether what a consumer publishes to is congested, told by its own publishing alone: median latency and errors.

Each consumer keeps its statistics and its throttle for itself, no two agree on anything; priorities lie in how far each
yields (:mod:`alerts.laws.aimd`). Source: Zalando engineering, "Enhancing Distributed System Load Shedding with TCP
Congestion Control Algorithm", April 2024: a statistics collector (P50 of publish latency, exceptions), a congestion
detector and a throttle for each consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from types import MappingProxyType
from typing import ClassVar

from alerts.laws import aimd
from alerts.laws.bounds import Bounds
from alerts.laws.law import Agreed, Wish, option
from alerts.laws.observation import Observation


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
    """The rate at which it may publish (messages/s), since when, and why."""

    rate: float
    changed_at: float = float("-inf")
    reason: str = ""


def step(terms: Terms, state: State, statistics: Statistics, now: float) -> tuple[State, str]:
    """The rate after a look at ``now``, at most one change a window, so that it is judged by what came after it."""
    count, middle, failed = statistics.seen(now)
    if count < terms.least:
        return state, f"{count} publishes ended: too few to say anything"
    if now - state.changed_at < terms.window_seconds:
        return state, "the last change has not had its time to act"
    found, why = adapted(terms, state.rate, middle, failed)
    return replace(state, rate=found, changed_at=now), why


def adapted(terms: Terms, rate: float, middle: float | None, failed: float) -> tuple[float, str]:
    """The rate after ``rate`` where publishes took ``middle`` seconds (median) and the part ``failed`` failed."""
    congested = failed > terms.most_errors or (middle is not None and middle > terms.most_seconds)
    found = aimd.adapt(rate, congested=congested, priority=terms.priority, bounds=terms.bounds)
    took = "no publish was confirmed" if middle is None else f"half of the publishes took {middle * 1e3:.0f} ms or more"
    return found.limit, f"{took}, {failed:.0%} failed: {found.reason}"


@dataclass(frozen=True, slots=True)
class Publishing:
    """The law as policies choose it: each tenant alone, by how long the broker takes to confirm a publish.

    What tells that, with any broker, are the applications that count their publishes to the queue (docs/client.md,
    "Publishes"); where none does, the probe of RabbitMQ (``amqp_url``): each sample of it counts as one publish, failed
    where the broker blocked publishers or confirmed nothing.
    """

    says: ClassVar[str] = "a tenant's own rate of publishing, by the broker's confirmations and the tenant's priority"
    source: ClassVar[str] = "Zalando 2024"
    fed_by: ClassVar[str] = (
        "`publishes`, `publish_errors` and `publish_latency_seconds` of applications in `queue_samples`,"
        " else `publish_latency_seconds` and `state` of RabbitMQ's probe there"
    )
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    counts: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("publishes", "publish_errors")
    signal: ClassVar[str] = "publishing"

    most_seconds: float = option("median of a publish above which the broker is congested", 0.1, unit="seconds")
    most_errors: float = option("part of publishes that fail above which it is", 0.05)
    over_seconds: float = option("over which that is measured, and the least between two changes", 5.0, unit="seconds")
    least: float = option("publishes of applications without which nothing is said", 20.0)
    least_probed: float = option("samples of the probe without which nothing is said", 3.0)

    def __post_init__(self) -> None:
        if not (self.most_seconds > 0 and 0 <= self.most_errors < 1 and self.over_seconds > 0):
            raise ValueError("most_seconds and over_seconds must be above 0, most_errors in [0, 1)")
        if not (self.least >= 1 and self.least_probed >= 1):
            raise ValueError("least and least_probed must be at least 1")

    @property
    def window_seconds(self) -> float:
        """Of the statistics."""
        return self.over_seconds

    def begin(self, rate: float, now: float) -> State:
        """Nothing was changed yet."""
        return State(rate)

    def look(self, agreed: Agreed, state: State, seen: Observation, rate: float, now: float) -> tuple[State, Wish]:
        """One step of :func:`alerts.laws.aimd.adapt` a window; between two, what the last one said."""
        if (seen.publishes or 0.0) < (self.least_probed if seen.publishes_probed else self.least):
            return state, Wish(None, f"{seen.publishes or 0:.0f} publishes were looked at: too few to say anything")
        if now - state.changed_at < self.over_seconds:
            return state, Wish(state.rate, state.reason, judged=False)
        terms = Terms(agreed.priority, agreed.bounds, self.most_seconds, self.most_errors, self.over_seconds)
        wanted, reason = adapted(terms, rate, seen.publish_seconds, seen.publish_errors or 0.0)
        return State(wanted, now, reason), Wish(wanted, reason, judged=True)

    def sent(self, seen: Observation) -> float:
        """Arrivals: who publishes is to obey."""
        return seen.arrival_rate

    def check(self, agreed: Agreed) -> None:
        """Any bounds do."""
