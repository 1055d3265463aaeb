"""The simulator beside exact results of queueing theory: they lie within its own intervals."""

from __future__ import annotations

import math
import statistics

import pytest

from lab.queue import Queue
from lab.scenario import parse
from lab.stats import Estimate, estimate
from tests.support.deep import examples

MEAN, SEEDS = 0.1, 8
#: Of six 95 % intervals one misses every fourth time; of these, with eight seeds, every eightieth.
WIDER = 2


def waits(servers: int, load: float, service: str) -> Estimate:
    """The mean wait of first attempts, once the queue is warm, over seeds."""
    found = []
    for seed in range(SEEDS):
        queue = Queue(
            parse(
                {
                    "title": "one queue", "duration_seconds": 600, "servers": servers,
                    "service": {"distribution": service, "mean_seconds": MEAN},
                    "tenants": [{"name": "a", "phases": [{"at": 0, "rate": load * servers / MEAN}]}],
                }
            ),
            servers,
            seed,
        )  # fmt: skip
        queue.run()
        found.append(statistics.fmean(one.age for one in queue.first_attempts if one.at > 60))
    return estimate(found)


def erlang_c(servers: int, load: float) -> float:
    """The mean wait of M/M/c (A. K. Erlang, 1917); ``load`` is ρ."""
    offered = servers * load
    last = offered**servers / math.factorial(servers) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    return waits * MEAN / (servers * (1 - load))


def pollaczek_khinchine(load: float, variation: float) -> float:
    """The mean wait of M/G/1; ``variation`` is the squared coefficient of variation of service times."""
    return load * MEAN * (1 + variation) / (2 * (1 - load))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 0.8), (12, 0.9)][: examples(2, 3)])
def test_servers_with_one_queue_wait_as_erlang_says(servers: int, load: float) -> None:
    found = waits(servers, load, "exponential")
    assert abs(found.mean - erlang_c(servers, load)) <= WIDER * found.half_width, found
    assert found.half_width < 0.4 * found.mean, "an interval that holds everything says nothing"


@pytest.mark.parametrize(("service", "variation"), [("constant", 0.0), ("exponential", 1.0), ("lognormal", 1.0)])
def test_one_server_waits_as_pollaczek_and_khinchine_say(service: str, variation: float) -> None:
    found = waits(1, 0.7, service)
    assert abs(found.mean - pollaczek_khinchine(0.7, variation)) <= WIDER * found.half_width, found
    assert found.half_width < 0.4 * found.mean
