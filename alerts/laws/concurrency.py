"""How many messages may be in work at once: by Little's law where service times are known, else by their gradient.

Sources: J. Little, "A proof for the queuing formula L = λW", Operations Research 9(3), 1961. Gradient: Netflix
concurrency-limits ``Gradient2Limit``: L ← 0.8 L + 0.2 (L × g + queue), g = clamp(tolerance × long ÷ short, 0.5, 1). By
itself it drifts: under a lasting overload the long average learns the overload (#134), and where every call takes the
same time-out g is 1 for ever and the limit rises to its maximum (#137). Hence the guard: an absolute latency above
which the limit never rises, and beyond which the long average learns nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from alerts.laws.law import Agreed, Wish, in_hand, option
from alerts.laws.observation import Observation

#: Netflix' published defaults.
LONG_WINDOW, WARM_UP, SMOOTHING, TOLERANCE, QUEUE = 600, 10, 0.2, 1.5, 4.0
#: Where the long average is so many times the short one it is out of date, and let down by a twentieth a window.
OUTDATED, LET_DOWN = 2.0, 0.95


def littles_law(arrival_rate: float, service_seconds: float, headroom: float = 1.0) -> int:
    """L = λW: how many are in work at once where ``arrival_rate`` messages/s take ``service_seconds`` each."""
    if arrival_rate < 0 or service_seconds < 0 or headroom < 1:
        raise ValueError(f"rate {arrival_rate} and time {service_seconds} must be at least 0, headroom {headroom} 1")
    return max(1, math.ceil(arrival_rate * service_seconds * headroom - 1e-9))


@dataclass(frozen=True, slots=True)
class Terms:
    """Bounds of the limit (messages in work) and the guard: a latency (seconds) too long whatever was usual."""

    floor: float = 20.0
    ceiling: float = 200.0
    guard_seconds: float = math.inf

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.ceiling or self.guard_seconds <= 0:
            raise ValueError(
                f"floor {self.floor} and ceiling {self.ceiling} must be 1 ≤ floor ≤ ceiling, the guard above 0"
            )


@dataclass(frozen=True, slots=True)
class State:
    """The limit, the long average of latencies (seconds; 0: none yet), and of how many windows it is."""

    limit: float
    long: float = 0.0
    windows: int = 0


def step(terms: Terms, state: State, latency: float, in_flight: float) -> tuple[State, str]:
    """The state after a window with mean ``latency`` (seconds) and at most ``in_flight`` in work, and why."""
    if latency <= 0 or not math.isfinite(latency):
        return state, "nothing was measured"
    if latency > terms.guard_seconds:
        limit = max(terms.floor, state.limit * max(0.5, terms.guard_seconds / latency))
        why = f"latency {latency:.3g} s is beyond the guard of {terms.guard_seconds:.3g} s"
        return replace(state, limit=limit), why
    windows = min(state.windows + 1, LONG_WINDOW)
    if windows <= WARM_UP:
        long = (state.long * (windows - 1) + latency) / windows
    else:
        long = state.long + (latency - state.long) * 2 / (LONG_WINDOW + 1)
    if long / latency > OUTDATED:
        long *= LET_DOWN
    if in_flight < state.limit / 2:
        return State(state.limit, long, windows), "less than half of the limit is used"
    gradient = min(1.0, max(0.5, TOLERANCE * long / latency))
    wanted = state.limit * gradient + QUEUE
    limit = min(terms.ceiling, max(terms.floor, (1 - SMOOTHING) * state.limit + SMOOTHING * wanted))
    return State(limit, long, windows), f"usually {long:.3g} s, now {latency:.3g} s: gradient {gradient:.2f}"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The law as policies choose it: floor and ceiling are messages that the tenant's consumer may have in work.

    The rate is the tenant's max-min share, the time what a message usually takes. A tenant whose work has become ten
    times as long has no more workers for it, so that the others keep theirs. Where the broker bounds what a consumer
    has in hand, the actuator `nats_max_ack_pending` makes it hold; elsewhere a dry run tells what it should be.
    """

    says: ClassVar[str] = "as many in work at once as the tenant's share of the rate needs, by Little's law"
    source: ClassVar[str] = "Little 1961"
    fed_by: ClassVar[str] = "throughput and arrivals of `partials`, `concurrency_limit` of `concurrency_now`"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    counts: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("max_min_share", "prefetch")
    signal: ClassVar[str] = "work"

    service_seconds: float = option("work on one message when all is well", unit="seconds")
    headroom: float = option("times what the law needs: arrivals come unevenly", 1.5)

    def __post_init__(self) -> None:
        if not 0 < self.service_seconds < math.inf or not 1 <= self.headroom < math.inf:
            raise ValueError("service_seconds must be above 0, headroom at least 1")

    @property
    def window_seconds(self) -> float:
        """The views' own."""
        return 0.0

    def begin(self, rate: float, now: float) -> None:
        """It remembers nothing."""

    def look(self, agreed: Agreed, state: None, seen: Observation, rate: float, now: float) -> tuple[None, Wish]:
        """Share × service time × headroom."""
        share = seen.max_min_share or 0.0
        wanted = agreed.bounds.within(float(littles_law(share, self.service_seconds, self.headroom)))
        reason = f"a share of {share:.4g}/s × {self.service_seconds:g} s × {self.headroom:g} = {wanted:g} in work"
        return None, Wish(wanted, reason)

    def sent(self, seen: Observation) -> float:
        """What its consumer may have in hand now, by the broker's word."""
        return seen.prefetch or 0.0

    def check(self, agreed: Agreed) -> None:
        """There are no parts of messages."""
        in_hand(agreed)


@dataclass(frozen=True, slots=True)
class Judged:
    """The gradient's state, when it was looked at last, and what it said then."""

    gradient: State
    at: float = -math.inf
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gradient:
    """The law as policies choose it: floor and ceiling are messages that the tenant's consumer may have in work.

    Where work on the tenant's messages takes longer than it usually did, fewer are worked on at once. What is usual is
    learnt from when the alert began; beyond the guard nothing is learnt, and the limit never rises.
    """

    says: ClassVar[str] = "fewer in work at once while work takes longer than usual, by the gradient of its time"
    source: ClassVar[str] = "Netflix concurrency-limits, `Gradient2Limit`"
    fed_by: ClassVar[str] = "`mean_processing_seconds`, `in_flight` and `concurrency_limit` of `concurrency_now`"
    worse: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    counts: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("processing_seconds", "in_work", "prefetch")
    signal: ClassVar[str] = "work"

    guard_seconds: float = option("work on one message that is too long whatever was usual", unit="seconds")
    every_seconds: float = option("from one judgement to the next", 1.0, unit="seconds")

    def __post_init__(self) -> None:
        if not (0 < self.guard_seconds < math.inf and 0 < self.every_seconds < math.inf):
            raise ValueError("guard_seconds and every_seconds must be above 0")

    @property
    def window_seconds(self) -> float:
        """The views' own."""
        return 0.0

    def begin(self, rate: float, now: float) -> Judged:
        """Nothing is usual yet."""
        return Judged(State(max(1.0, rate)))

    def look(self, agreed: Agreed, state: Judged, seen: Observation, rate: float, now: float) -> tuple[Judged, Wish]:
        """One window of :func:`step`, where it is time for one; from ``rate`` on, which is in force."""
        if now - state.at < self.every_seconds:
            return state, Wish(state.gradient.limit, state.reason)
        terms = Terms(agreed.bounds.floor, agreed.bounds.ceiling, self.guard_seconds)
        before = replace(state.gradient, limit=agreed.bounds.within(max(1.0, rate)))
        after, reason = step(terms, before, seen.processing_seconds or 0.0, seen.in_work or 0.0)
        return Judged(after, now, reason), Wish(after.limit, reason)

    def sent(self, seen: Observation) -> float:
        """What its consumer may have in hand now, by the broker's word."""
        return seen.prefetch or 0.0

    def check(self, agreed: Agreed) -> None:
        """There are no parts of messages."""
        in_hand(agreed)
