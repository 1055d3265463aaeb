"""What no cap gets below, however well it is set: the excess of its reaction time is in the queue when it comes."""

from __future__ import annotations

import pytest

from lab.loop import Loop
from lab.queue import Queue
from lab.run import result
from lab.scenario import Phase, Scenario, Tenant, Variant

SERVERS, MEAN, QUIET, FLOOD = 12, 0.1, 70.0, 120.0
BEGINS, SECONDS = 30.0, 120.0
FREE = Variant("nothing", False, SERVERS)


def least_p99(reaction: float, held_to: float = 0.0) -> float:
    """Seconds that the quiet wait at the least at the 99th percentile of a flood of two minutes, which for ``reaction``
    seconds nobody holds, and then a cap to ``held_to`` messages/s until the queue is empty again.

    A fluid: the wait rises by u a second, and falls by v. Of the flood's time one part in a hundred waits longer.
    """
    capacity = SERVERS / MEAN
    u, v = (QUIET + FLOOD - capacity) / capacity, (capacity - QUIET - held_to) / capacity
    return u * reaction - 0.01 * SECONDS / (1 / u + 1 / v)


def scenario(flood: float) -> Scenario:
    quiet = [Tenant(f"quiet-{number}", (Phase(0, QUIET / 7),)) for number in range(7)]
    noisy = Tenant("flood", (Phase(BEGINS, flood),), suspect=True, innocent=False)
    end = BEGINS + SECONDS
    return Scenario(
        title="12:1 for two minutes",
        duration=end,
        tenants=(*quiet, noisy),
        variants=(FREE,),
        service="exponential",
        service_mean=MEAN,
        producer="shed",
        measure=(BEGINS, end),
    )


def p99(reaction: float, seed: int) -> float:
    """Of the quiet, beside a cap that knows all: after ``reaction`` seconds nothing more of the flood comes until its
    excess is gone, then half of what is left."""
    played = scenario(FLOOD)
    queue = Queue(played, SERVERS, seed)
    loop = Loop(queue, played)
    loop.start()
    capacity = SERVERS / MEAN
    holds = BEGINS + reaction
    drained = holds + (QUIET + FLOOD - capacity) * reaction / (capacity - QUIET)
    end = BEGINS + SECONDS
    queue.at(holds, lambda: queue.limit("flood", 1e-6, end, first=0.0))
    queue.at(drained, lambda: queue.limit("flood", (capacity - QUIET) / 2, end))
    queue.run()
    return result(played, queue, loop).quiet_p99


@pytest.mark.parametrize("reaction", [1.5, 2.2, 3.0, 4.5])
def test_the_best_of_caps_comes_to_what_its_reaction_lets_wait(reaction: float) -> None:
    found = sum(p99(reaction, seed) for seed in range(6)) / 6
    assert found == pytest.approx(least_p99(reaction), abs=0.2), "the queue's own fluctuation"


def test_fifteen_times_what_the_quiet_wait_alone_needs_a_reaction_within_two_seconds() -> None:
    """They wait 0.048 s alone on a broker (docs/benchmarks.md); docs/adr/0020 has these figures."""
    ratios = {reaction: round(least_p99(reaction) / 0.048) for reaction in (1.7, 2.2, 2.5, 3.0, 4.5)}
    assert ratios == {1.7: 15, 2.2: 21, 2.5: 24, 3.0: 30, 4.5: 49}
    assert round(least_p99(2.5, held_to=25.0) / 0.048) == 27
