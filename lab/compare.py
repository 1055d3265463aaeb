"""Every way to run a scenario beside doing nothing, seed by seed: whom it helps, whom it costs, what it does in vain.

The same seed brings the same arrivals to each way, so what is compared is the difference within a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lab.run import Result, Run, simulate
from lab.scenario import Scenario
from lab.stats import NOTHING, Estimate, estimate


@dataclass(frozen=True, slots=True)
class Compared:
    """One way over all seeds. p99 ages in seconds, from when producers had the messages: held time included.

    ``quiet_change`` is the quiet tenants' age less the same under nothing, ``suspect`` is of those reported apart.
    ``throughput`` is what it completed by the end of the measured time ÷ nothing; ``innocents`` were limited, of
    ``limited`` a seed; ``done`` messages were completed by then.
    """

    variant: str
    quiet: Estimate
    suspect: Estimate
    throughput: Estimate
    quiet_change: Estimate
    innocents: int
    limited: float
    done: float
    seeds: int

    def worse(self, tolerance: float) -> list[str]:
        """In what it is worse than doing nothing beyond its interval; ages may be ``tolerance`` seconds longer."""
        found = []
        if self.quiet_change.low > tolerance:
            found.append("the quiet wait longer")
        if self.throughput.high < LEAST_THROUGHPUT:
            found.append("less is completed")
        if self.innocents:
            found.append("innocents are limited")
        return found


#: A policy may complete this part of what is completed without it.
LEAST_THROUGHPUT = 0.97


def while_asked_for(found: Result, nothing: Result) -> float:
    """What a run completed ÷ what nothing did, in the seconds in which both had more to do: messages that waited, were
    held or shed. In all others a run completes what it is asked for. 1 where there were none."""
    seconds = found.demand & nothing.demand
    done, other = (sum(one.completions.get(second, 0) for second in seconds) for one in (found, nothing))
    return done / other if other else 1.0


def compare(scenario: Scenario, seeds: Iterable[int], run: Run = simulate) -> list[Compared]:
    """Each variant of ``scenario``, the first of which does nothing, over ``seeds``.

    Who gives ``run`` hears of each run as it ends: one variant after the other, each over all seeds.
    """
    seeds = tuple(seeds)
    results = [[run(scenario, seed, variant) for seed in seeds] for variant in scenario.variants]
    return [
        _compared(variant.name, found, results[0], len(seeds))
        for variant, found in zip(scenario.variants, results, strict=True)
    ]


def _compared(name: str, found: list[Result], nothing: list[Result], seeds: int) -> Compared:
    pairs = list(zip(found, nothing, strict=True))
    return Compared(
        name,
        _estimate([one.quiet_total_p99 for one in found]),
        _estimate([one.suspect_total_p99 for one in found]),
        _estimate([one.done / other.done for one, other in pairs]),
        _estimate([one.quiet_total_p99 - other.quiet_total_p99 for one, other in pairs]),
        sum(one.innocents for one in found),
        sum(one.limited for one in found) / len(found),
        sum(one.done for one in found) / len(found),
        seeds,
    )


def _estimate(values: list[float]) -> Estimate:
    """NaN where there are no such tenants."""
    return NOTHING if any(math.isnan(value) for value in values) else estimate(values)
