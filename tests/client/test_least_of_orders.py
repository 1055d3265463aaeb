"""What no order gets below while all servers are busy, and what servers kept free for the quiet would cost."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque

import pytest

from benchmarks.backpressure_parts.least import delayed, idle, p99

SERVERS, MEAN, QUIET, SECONDS = 12, 0.1, 70.0, 1500.0


def served(kept_free: int, seed: int) -> tuple[list[float], float]:
    """How long the quiet waited, who go first, beside others of whom there are always more; the part of the servers'
    time that was worked."""
    chance = random.Random(seed)
    busy: list[float] = []
    waiting: deque[float] = deque()
    waits: list[float] = []
    worked = 0.0

    def begin(now: float) -> None:
        nonlocal worked
        while len(busy) < SERVERS and (waiting or len(busy) < SERVERS - kept_free):
            if waiting:
                waits.append(now - waiting.popleft())
            work = chance.expovariate(1 / MEAN)
            worked += work
            heapq.heappush(busy, now + work)

    now = 0.0
    begin(now)
    while (now := now + chance.expovariate(QUIET)) < SECONDS:
        while busy and busy[0] <= now:
            begin(heapq.heappop(busy))
        waiting.append(now)
        begin(now)
    return sorted(waits), worked / SERVERS / SECONDS


@pytest.mark.parametrize("kept_free", [0, 1, 2, SERVERS])
def test_the_quiet_wait_as_the_formula_says_and_free_servers_cost_as_much(kept_free: int) -> None:
    runs = [served(kept_free, seed) for seed in range(3)]
    found = sum(waits[math.ceil(0.99 * len(waits)) - 1] for waits, _ in runs) / 3
    assert found == pytest.approx(p99(SERVERS, QUIET, MEAN, kept_free), rel=0.12)
    worked = sum(part for _, part in runs) / 3
    assert worked == pytest.approx(1 - idle(SERVERS, QUIET, MEAN, kept_free), abs=0.01)


def test_twice_what_the_quiet_wait_alone_needs_two_servers_of_twelve_kept_free() -> None:
    """docs/benchmarks.md has these figures: 2 is wanted, at 0.97 of the throughput."""
    alone = p99(SERVERS, QUIET, MEAN, SERVERS)
    assert delayed(SERVERS, QUIET, MEAN, SERVERS) == pytest.approx(0.0626, abs=1e-4), "Erlang's delay formula"
    ratios = [round(p99(SERVERS, QUIET, MEAN, kept) / alone, 2) for kept in range(3)]
    parts = [round(1 - idle(SERVERS, QUIET, MEAN, kept), 3) for kept in range(3)]
    assert list(zip(ratios, parts, strict=True)) == [(2.51, 1.0), (2.22, 0.965), (1.94, 0.913)]
