"""What quiet tenants gain by a fair order on a real NATS broker: 12:1, open loop, and the same tenants alone.

Seven tenants send 10/s, an eighth twelve times as much, to twelve workers of 0.1 s each (exponential): 190/s for a
capacity of 120/s. Then the same flood under forty names, of which the consumer is told nothing; and a lone tenant.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.backpressure_parts.least import p99
from benchmarks.backpressure_parts.load import (
    CAPACITY,
    WORK_SECONDS,
    WORKERS,
    Consume,
    Seen,
    consumer_in_order,
    consuming,
    fair,
    in_order,
    stream,
)
from benchmarks.figures import Figure
from tests.support.nats import NatsServer

SECONDS, QUIET, RATE, TIMES = 120.0, 7, 10.0, 12
ALONE = {f"quiet-{number}": RATE for number in range(QUIET)}
FLOOD = ALONE | {"flood": RATE * TIMES}
#: One under forty names, who begins once the quiet ones have been there for a while (seconds).
SYBIL, BEFORE = {f"sybil-{number}": RATE * TIMES / 40 for number in range(40)}, 20.0
#: A lone tenant sends twice the capacity for this part of the time.
LONE, LONE_PART = {"lone": 2 * CAPACITY}, 0.25


def measure(scale: float) -> Iterator[Figure]:
    """The ratios are to the quiet tenants alone, served by the same consumer; the baseline is a consumer in order.

    ``_least`` is what no order gets below on a broker that takes no time, as long as no worker stands idle.
    """
    seconds = max(5.0, SECONDS * scale)
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        alone = _run(server.url, seconds, ALONE, fair)
        served = _run(server.url, seconds, FLOOD, fair)
        arrival = _run(server.url, seconds, FLOOD, in_order)
        sybil = _run(server.url, seconds, ALONE, fair, then=ALONE | SYBIL)
        lone = _run(server.url, LONE_PART * seconds, LONE, fair, to_the_end=True)
        lone_arrival = _run(server.url, LONE_PART * seconds, LONE, in_order, to_the_end=True)
    quiet = alone.p99()
    yield Figure("quiet_p99_ratio_fair", served.p99() / quiet, "ratio", arrival.p99() / quiet)
    least, least_alone = (p99(WORKERS, QUIET * RATE, WORK_SECONDS, kept_free=free) for free in (0, WORKERS))
    yield Figure("quiet_p99_ratio_fair_least", least / least_alone, "ratio")
    yield Figure("quiet_p99_seconds_fair", served.p99(), "s", arrival.p99())
    yield Figure("quiet_p99_seconds_alone", quiet, "s")
    yield Figure("throughput_ratio_fair", served.completed / arrival.completed, "ratio", 1.0)
    yield Figure("quiet_p99_ratio_sybil", sybil.p99() / quiet, "ratio", arrival.p99() / quiet)
    yield Figure("lone_makespan_ratio_fair", lone.makespan / lone_arrival.makespan, "ratio", 1.0)


def _run(
    url: str,
    seconds: float,
    rates: Mapping[str, float],
    consume: Consume,
    *,
    to_the_end: bool = False,
    then: Mapping[str, float] | None = None,
) -> Seen:
    async def once() -> Seen:
        async with stream(url) as jetstream:
            if consume is in_order:
                await consumer_in_order(jetstream)
            async with consuming(jetstream, consume) as load:
                if then is not None:
                    await load.run(BEFORE, rates)
                return await load.run(seconds, then or rates, to_the_end=to_the_end, leave=not to_the_end)

    return asyncio.run(once())
