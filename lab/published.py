"""Tables that others published, by the laws as they are shipped: ``make lab`` writes them to docs/lab/published.md."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from alerts.laws import partitions, publishing
from alerts.laws.bounds import Bounds
from lab.queue import lognormal

#: concurrency-limits' example: two workers of 20 ms, so that a hundred requests a second can be served.
WORKERS, SERVICE_SECONDS, LIMIT = 2, 0.02, 10
LIVE_RATE, BATCH_RATES, PHASE_SECONDS = 50.0, (50.0, 100.0), 100.0


@dataclass(slots=True)
class Served:
    """What one kind of traffic asked for and got in one phase, in requests."""

    offered: int = 0
    served: int = 0

    @property
    def part(self) -> float:
        """The part that was served."""
        return self.served / max(1, self.offered)


def partitioned(seed: int, *, live_share: float = 1.0, batch_share: float = 0.0) -> list[dict[str, Served]]:
    """Live and batch traffic at one service behind a partitioned limiter, phase by phase of :data:`BATCH_RATES`.

    Netflix concurrency-limits, README, "Limit by partition": a guaranteed 1.0 for live and 0.0 for batch traffic.
    """
    chance, shares = random.Random(seed), {"live": live_share, "batch": batch_share}
    in_work, waiting, busy = dict.fromkeys(shares, 0), list[str](), 0
    found = [{name: Served() for name in shares} for _ in BATCH_RATES]
    events: list[tuple[float, int, str, str]] = []
    order = count()

    def at(when: float, kind: str, name: str) -> None:
        heapq.heappush(events, (when, next(order), kind, name))

    def rate(name: str, now: float) -> float:
        return LIVE_RATE if name == "live" else BATCH_RATES[min(len(found) - 1, int(now // PHASE_SECONDS))]

    for name in shares:
        at(chance.expovariate(rate(name, 0.0)), "comes", name)
    while events and events[0][0] < PHASE_SECONDS * len(found):
        now, _, kind, name = heapq.heappop(events)
        phase = found[int(now // PHASE_SECONDS)][name]
        if kind == "comes":
            phase.offered += 1
            at(now + chance.expovariate(rate(name, now)), "comes", name)
            if not partitions.admits(LIMIT, sum(in_work.values()), in_work[name], shares[name]):
                continue
            in_work[name] += 1
            waiting.append(name)
        else:
            busy -= 1
            in_work[name] -= 1
            phase.served += 1
        while waiting and busy < WORKERS:
            busy += 1
            at(now + lognormal(chance, SERVICE_SECONDS), "done", waiting.pop(0))
    return found


@dataclass(frozen=True, slots=True)
class Curve:
    """One consumer's rate (messages/s), second by second."""

    priority: str
    rates: tuple[float, ...]

    def mean(self, since: int, until: int) -> float:
        """Over these seconds."""
        return sum(self.rates[since:until]) / (until - since)


@dataclass(slots=True)
class _Publisher:
    terms: publishing.Terms
    state: publishing.State
    statistics: publishing.Statistics
    rates: list[float] = field(default_factory=list)


#: Each priority wants so much; the broker takes first all of it, in the middle third of the time 60 % of it.
WANTED, CAPACITIES, CURVE_SECONDS = 100.0, (400.0, 180.0, 400.0), 300
#: How long a publish takes where the broker keeps up (seconds).
PUBLISH_SECONDS = 0.02


def priorities(seed: int, order: Sequence[str] = ("P1", "P2", "P3")) -> list[Curve]:
    """Three consumers of one priority each, which publish to one broker and agree on nothing.

    The broker is a fluid queue: what it cannot take waits, and a publish waits for that. Zalando, April 2024: the rate
    of P1 stays while that of P3 gives way.
    """
    chance = random.Random(seed)
    consumers = [
        _Publisher(
            publishing.Terms(priority, Bounds(1.0, WANTED, 1.0)),
            # They did not start together, so they do not look together.
            publishing.State(WANTED, chance.uniform(-5, 0)),
            publishing.Statistics(5.0),
        )
        for priority in order
    ]
    backlog = 0.0
    for second in range(CURVE_SECONDS):
        capacity = CAPACITIES[second * len(CAPACITIES) // CURVE_SECONDS]
        backlog = max(0.0, backlog + sum(one.state.rate for one in consumers) - capacity)
        for one in consumers:
            one.rates.append(one.state.rate)
            for _ in range(round(one.state.rate)):
                taken = PUBLISH_SECONDS * chance.uniform(0.5, 1.5) + backlog / capacity
                one.statistics.add(second + 1, taken, failed=chance.random() < 0.01)
            one.state, _ = publishing.step(one.terms, one.state, one.statistics, second + 1.0)
    return [Curve(one.terms.priority, tuple(one.rates)) for one in consumers]
