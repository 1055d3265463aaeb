"""The servers and the load that every limiter meets: a trace that is the same to the last digit, and what came of it.

Twenty servers of 0.1 s (exponential) with one queue, first in, first out, behind the limiter. Requests come by a
Poisson process that heeds nobody: ten minutes at 70 % of the capacity, forty at 120 %, ten at 70 %. What is rejected
is gone.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SERVERS, SERVICE_SECONDS = 20, 0.1
CAPACITY = SERVERS / SERVICE_SECONDS  # requests/s
#: From when on (parts of the run) how much of the capacity is asked for.
DEMAND = ((0.0, 0.7), (1 / 6, 1.2), (5 / 6, 0.7))
#: A request that took longer is of no use to anybody.
OBJECTIVE_SECONDS = 0.5
#: No limiter may let in more at once.
MOST = 1_000


class Limiter(Protocol):
    """What decides whether a request is let in; instants and times in seconds."""

    @property
    def limit(self) -> float:
        """What it holds now."""

    def admits(self, now: float, in_flight: int) -> bool:
        """Whether one more is let in."""

    def sample(self, now: float, latency: float, in_flight: int) -> None:
        """One is done: how long it took, and how many there were when it was let in, with it."""


def trace(seconds: float, seed: int = 0) -> Array:
    """When each request comes, and how long work on it takes: (requests, 2), seconds."""
    chance = np.random.default_rng(seed)
    starts = [part * seconds for part, _ in DEMAND] + [seconds]
    arrivals = []
    for (_, demand), start, end in zip(DEMAND, starts, starts[1:], strict=False):
        count = chance.poisson(demand * CAPACITY * (end - start))
        arrivals.append(np.sort(chance.uniform(start, end, count)))
    at = np.concatenate(arrivals)
    return np.column_stack((at, chance.exponential(SERVICE_SECONDS, len(at))))


def run(requests: Array, limiter: Limiter) -> Array:
    """What became of each request: its latency, −1 where it was rejected, and the limit then: (requests, 2)."""
    running: list[tuple[float, float, int]] = []
    free = [0.0] * SERVERS
    outcome: list[tuple[float, float]] = []
    for now, service in requests.tolist():
        while running and running[0][0] <= now:
            ends, began, in_flight = heapq.heappop(running)
            limiter.sample(ends, ends - began, in_flight)
        latency = -1.0
        if limiter.admits(now, len(running)):
            ends = max(now, heapq.heappop(free)) + service
            heapq.heappush(free, ends)
            heapq.heappush(running, (ends, now, len(running) + 1))
            latency = ends - now
        outcome.append((latency, limiter.limit))
    return np.array(outcome)


@dataclass(frozen=True, slots=True)
class Shown:
    """What one limiter made of the overload. Latencies are of what was let in (seconds).

    ``goodput`` is what was done within the objective, ÷ what the servers can; ``calm`` the part of what was asked for
    before it that was. ``drift`` is the mean limit of its last quarter ÷ that of its first.
    """

    p99: float
    p99_late: float
    goodput: float
    calm: float
    limit: float
    drift: float


def shown(requests: Array, outcome: Array, seconds: float) -> Shown:
    """The figures of one run; the first minute of the overload is left out, in which limits are found."""
    at, latency, limit = requests[:, 0], outcome[:, 0], outcome[:, 1]
    begin, end = DEMAND[1][0] * seconds + min(60.0, seconds / 60), DEMAND[2][0] * seconds
    quarter = (end - begin) / 4
    let_in = latency >= 0
    good = let_in & (latency <= OBJECTIVE_SECONDS)

    def p99(since: float, until: float) -> float:
        return float(np.quantile(latency[let_in & (at >= since) & (at < until)], 0.99))

    def mean_limit(since: float, until: float) -> float:
        return float(limit[(at >= since) & (at < until)].mean())

    overload, before = (at >= begin) & (at < end), at < DEMAND[1][0] * seconds
    first, last = mean_limit(begin, begin + quarter), mean_limit(end - quarter, end)
    return Shown(
        p99=p99(begin, end),
        p99_late=p99(end - quarter, end),
        goodput=float(good[overload].sum() / (CAPACITY * (end - begin))),
        calm=float(good[before].sum() / before.sum()),
        limit=last,
        drift=last / first,
    )
