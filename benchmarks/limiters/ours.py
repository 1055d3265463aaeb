"""Our laws as limiters, each looked at once a second, and none at all."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from alerts.laws import aimd, concurrency, token_bucket
from alerts.laws.bounds import Bounds
from benchmarks.limiters.world import CAPACITY, MOST, OBJECTIVE_SECONDS, SERVICE_SECONDS

WINDOW_SECONDS, FEWEST = 1.0, 10
#: A window is congested where its mean is beyond this part of the objective: one in a hundred takes far longer.
CONGESTED = 0.4


@dataclass(slots=True)
class Nothing:
    """Everybody is let in."""

    limit: float = math.inf

    def admits(self, now: float, in_flight: int) -> bool:
        """Always."""
        return True

    def sample(self, now: float, latency: float, in_flight: int) -> None:
        """Nothing is learnt."""


@dataclass(slots=True)
class _Window:
    """Latencies of a second."""

    ends: float = WINDOW_SECONDS
    latencies: list[float] = field(default_factory=list)
    in_flight: int = 0

    def add(self, now: float, latency: float, in_flight: int) -> bool:
        """Whether the window is over, with enough in it."""
        self.latencies.append(latency)
        self.in_flight = max(self.in_flight, in_flight)
        return now >= self.ends and len(self.latencies) >= FEWEST

    def next(self, now: float) -> None:
        """Begin another."""
        self.ends, self.latencies, self.in_flight = now + WINDOW_SECONDS, [], 0

    @property
    def mean(self) -> float:
        """The mean latency of it (seconds)."""
        return sum(self.latencies) / len(self.latencies)


@dataclass(slots=True)
class Gradient:
    """Gradient2 with an absolute guard: :mod:`alerts.laws.concurrency`. Without the guard it is the published law."""

    guarded: bool = True
    state: concurrency.State = field(default_factory=lambda: concurrency.State(20.0))
    window: _Window = field(default_factory=_Window)

    @property
    def limit(self) -> float:
        """Requests at once."""
        return self.state.limit

    def admits(self, now: float, in_flight: int) -> bool:
        """While there are fewer than the limit."""
        return in_flight < int(self.state.limit)

    def sample(self, now: float, latency: float, in_flight: int) -> None:
        """A step each second."""
        if self.window.add(now, latency, in_flight):
            guard = CONGESTED * OBJECTIVE_SECONDS if self.guarded else math.inf
            terms = concurrency.Terms(20.0, MOST, guard)
            self.state, _ = concurrency.step(terms, self.state, self.window.mean, self.window.in_flight)
            self.window.next(now)


@dataclass(slots=True)
class Little:
    """λW, half as much again: the most finished in a second of the last ten, by what work is known to take."""

    limit: float = 20.0
    headroom: float = 1.5
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=10))
    window: _Window = field(default_factory=_Window)
    began: float = 0.0

    def admits(self, now: float, in_flight: int) -> bool:
        """While there are fewer than the limit."""
        return in_flight < self.limit

    def sample(self, now: float, latency: float, in_flight: int) -> None:
        """A step each second."""
        if self.window.add(now, latency, in_flight):
            self.rates.append(len(self.window.latencies) / (now - self.began))
            self.began = now
            self.limit = min(MOST, concurrency.littles_law(max(self.rates), SERVICE_SECONDS, self.headroom))
            self.window.next(now)


@dataclass(slots=True)
class Aimd:
    """A rate with priorities' gains (P1), congested where a second's mean latency is beyond half of the objective."""

    limit: float = CAPACITY
    level: token_bucket.Level = field(default_factory=lambda: token_bucket.Level(1.0, 0.0))
    window: _Window = field(default_factory=_Window)

    def admits(self, now: float, in_flight: int) -> bool:
        """While the bucket of a tenth of a second has a token."""
        bucket = token_bucket.TokenBucket(self.limit, max(1.0, self.limit / 10))
        taken = token_bucket.take(bucket, self.level, now)
        self.level = taken.level
        return taken.allowed

    def sample(self, now: float, latency: float, in_flight: int) -> None:
        """A step each second."""
        if self.window.add(now, latency, in_flight):
            congested = self.window.mean > CONGESTED * OBJECTIVE_SECONDS
            bounds = Bounds(1.0, 10 * CAPACITY, 0.5)
            self.limit = aimd.adapt(self.limit, congested=congested, priority="P1", bounds=bounds).limit
            self.window.next(now)
