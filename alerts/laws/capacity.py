"""How many consumers a queue needs, how sure that is, and when more of them would help nobody.

required concurrency = (arrivals + backlog ÷ target drain time) × service time: Little's law (Operations Research 9(3),
1961) over the throughput that drains in time (:mod:`alerts.laws.drain`). Its 90 % interval is by the delta method:
arrivals are Poisson counts of a window, service times have a standard deviation as large as their mean.

Where another resource is the limit – a database that all consumers share – consumers wait for it, service times grow
with each that is added, and the formula asks for more and more (kedacore/keda#7092). So throughput is measured at each
number of consumers while messages wait. Where the added ones brought less than ``least_gain`` of what one brought
before, by the upper bound of the difference's interval, nobody is sent for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from alerts.laws.drain import Z90, capacity_needed

#: A level's counts are halved once they are of so many windows: what was long ago counts for less.
MOST_WINDOWS = 10


@dataclass(frozen=True, slots=True)
class Terms:
    """What is aimed at. Times in seconds; ``per_consumer`` is how many messages one consumer works on at once.

    More consumers than ``partitions`` would stand idle. A measured throughput is forgotten after ``forget_seconds``:
    so long is scaling out refused before it may be tried again.
    """

    drain_seconds: float = 300.0
    per_consumer: int = 1
    fewest: int = 1
    partitions: int | None = None
    least_gain: float = 0.25
    window_seconds: float = 60.0
    forget_seconds: float = 1800.0

    def __post_init__(self) -> None:
        if min(self.drain_seconds, self.window_seconds, self.forget_seconds) <= 0 or self.per_consumer < 1:
            raise ValueError("times must be above 0, and a consumer works on at least one message at once")
        if not 0 <= self.fewest <= (self.partitions if self.partitions is not None else math.inf):
            raise ValueError(f"fewest {self.fewest} must be at least 0 and at most the {self.partitions} partitions")
        if not 0 <= self.least_gain < 1:
            raise ValueError(f"least_gain {self.least_gain} must be in [0, 1)")


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a queue: rates in messages/s over the window, messages not finished, seconds of work for each.

    ``waiting``: messages wait that a consumer could have. None is unknown.
    """

    arrival_rate: float
    finish_rate: float
    backlog: float
    service_seconds: float | None
    consumers: int | None = None
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """What so many consumers finished while messages waited, in how many seconds, and when that was last seen."""

    consumers: int
    finished: float
    seconds: float
    at: float

    @property
    def rate(self) -> float:
        """Messages/s."""
        return self.finished / self.seconds


@dataclass(frozen=True, slots=True)
class State:
    """Throughput by the number of consumers; since when their number stands and messages wait; the last count."""

    levels: tuple[Level, ...] = ()
    consumers: int | None = None
    since: float | None = None
    counted_at: float = field(default=-math.inf)


@dataclass(frozen=True, slots=True)
class Advice:
    """How many consumers there should be, and the required concurrency with its 90 % interval; None is unknown."""

    consumers: int | None
    required: float | None
    low: float | None
    high: float | None
    reason: str


def required(terms: Terms, seen: Seen) -> tuple[float, float, float] | None:
    """(low, value, high) of the required concurrency; None while nothing tells how long work takes."""
    rate = capacity_needed(seen.backlog, seen.arrival_rate, terms.drain_seconds)
    if rate == 0:
        return 0.0, 0.0, 0.0
    if seen.service_seconds is None:
        return None
    value = rate * seen.service_seconds
    ended = max(1.0, seen.finish_rate * terms.window_seconds)
    variance = seen.service_seconds**2 * seen.arrival_rate / terms.window_seconds + value**2 / ended
    spread = Z90 * math.sqrt(variance)
    return max(0.0, value - spread), value, value + spread


def step(terms: Terms, seen: Seen, state: State, now: float) -> tuple[State, Advice]:
    """The state after one look at ``now`` (seconds), and what is advised."""
    state = learn(terms, seen, state, now)
    found = required(terms, seen)
    if found is None:
        return state, Advice(None, None, None, None, "nothing was finished: how long work takes is not known")
    low, value, high = found
    wanted, most = _consumers(terms, value), _consumers(terms, high)
    reason = (
        f"({seen.arrival_rate:.3g}/s + {seen.backlog:.0f} ÷ {terms.drain_seconds:g} s)"
        f" × {seen.service_seconds or 0.0:.3g} s = {value:.3g} in work at once"
    )
    there = seen.consumers
    if there is not None and wanted < there <= most:
        wanted, reason = there, f"{reason}; {there} consumers are within its interval, and stay"
    elif there is not None and wanted > there and (flat := stopped_rising(terms, state.levels)) is not None:
        before, after = flat
        allowed = max(there, before.consumers)
        if wanted > allowed:
            wanted = allowed
            reason = (
                f"{reason}, but throughput stopped rising: {before.consumers} consumers finished {before.rate:.3g}/s,"
                f" {after.consumers} finished {after.rate:.3g}/s; something else is the limit"
            )
    if terms.partitions is not None and wanted > terms.partitions:
        wanted, reason = terms.partitions, f"{reason}; there are {terms.partitions} partitions, more would stand idle"
    return state, Advice(max(terms.fewest, wanted), value, low, high, reason)


def learn(terms: Terms, seen: Seen, state: State, now: float) -> State:
    """Count what was finished in the window that ends ``now``, if the consumers were as many and busy throughout."""
    levels = tuple(level for level in state.levels if now - level.at <= terms.forget_seconds)
    if not seen.waiting or not seen.consumers:
        return State(levels, seen.consumers, None, state.counted_at)
    if seen.consumers != state.consumers or state.since is None:
        return State(levels, seen.consumers, now, state.counted_at)
    if now - max(state.since, state.counted_at) < terms.window_seconds:
        return replace(state, levels=levels)
    before = next((level for level in levels if level.consumers == seen.consumers), None)
    finished, seconds = seen.finish_rate * terms.window_seconds, terms.window_seconds
    if before is not None:
        weight = 1.0 if before.seconds < MOST_WINDOWS * terms.window_seconds else 0.5
        finished, seconds = finished + weight * before.finished, seconds + weight * before.seconds
    others = [level for level in levels if level is not before]
    mine = Level(seen.consumers, finished, seconds, now)
    return replace(state, levels=tuple(sorted([*others, mine], key=_number)), counted_at=now)


def stopped_rising(terms: Terms, levels: Iterable[Level]) -> tuple[Level, Level] | None:
    """The fewest consumers that more did not outdo, and those who did not; None where more always brought more.

    An added consumer brings ``least_gain`` of what one brought before, unless the upper bound of what was gained, by
    Poisson counts, says that it does not.
    """
    for before, after in pairwise(sorted(levels, key=_number)):
        spread = Z90 * math.sqrt(before.rate / before.seconds + after.rate / after.seconds)
        gained = (after.rate - before.rate + spread) / (after.consumers - before.consumers)
        if gained < terms.least_gain * before.rate / before.consumers:
            return before, after
    return None


def _number(level: Level) -> int:
    return level.consumers


def _consumers(terms: Terms, concurrency: float) -> int:
    return max(terms.fewest, math.ceil(concurrency / terms.per_consumer - 1e-9))
