"""What quiet tenants gain where consumers take messages in order: by standing entitlements alone, by caps alone.

The whole way is real: the broker's tap, Spark, the alert process, its limits API and clients that obey it. First the
quiet tenants alone, then 12:1 as in the part ``fair``; last, what neither may cost: a lone tenant at twice the
capacity, and a backlog of ten times the capacity.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import sojourn
from benchmarks.backpressure_parts.fair import ALONE, FLOOD, LONE, LONE_PART, SECONDS
from benchmarks.backpressure_parts.load import CAPACITY, Load, consumer_in_order, consuming, in_order, stream
from benchmarks.backpressure_parts.watched import Watched, freshness, watched
from benchmarks.figures import Figure
from sojourn.demo.freshness import Freshness
from sojourn.demo.measure import quantile
from tests.support.nats import NatsServer

#: Quiet tenants' calm before each flood: metrics must know the queue.
CALM_SECONDS = 15.0
#: Of what comes with the backlog, and when it counts as fresh (seconds).
AFTERWARDS, FRESH_SECONDS = 0.4, 3.0
#: From this part of a flood on, what its first moments left behind is gone.
SETTLED = 0.5


def measured(name: str, control: str, scale: float) -> Iterator[Figure]:
    """Ratios to the same tenants alone in the same run, under the ``control`` settings; baselines: no control."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        yield from asyncio.run(_measured(name, server.url, Path(folder), control, max(10.0, SECONDS * scale)))


@asynccontextmanager
async def at_rest(
    url: str, folder: Path, control: str
) -> AsyncIterator[tuple[Watched, Freshness, sojourn.Limits, Load]]:
    """Consumers that take messages in order, watched under the ``control`` settings, when metrics know their calm."""
    async with AsyncExitStack() as stack:
        jetstream = await stack.enter_async_context(stream(url))
        await consumer_in_order(jetstream)
        sojourn_ = stack.enter_context(watched(url, folder, control))
        lags, limits = stack.enter_context(freshness(sojourn_.lake)), stack.enter_context(sojourn_.limits())
        load = await stack.enter_async_context(consuming(jetstream, in_order))
        while not lags.first_metrics:
            await load.run(2.0, ALONE, limits=limits)
        await load.run(CALM_SECONDS, ALONE, limits=limits)
        yield sojourn_, lags, limits, load


async def _measured(name: str, url: str, folder: Path, control: str, seconds: float) -> list[Figure]:
    async with at_rest(url, folder, control) as (_, lags, limits, load):
        alone = await load.run(seconds, ALONE, limits=limits)
        began, reacted = time.time(), asyncio.create_task(_reaction(limits))
        served = await load.run(seconds, FLOOD, limits=limits)
        reacted.cancel()
        fresh = quantile(lags.between(began, time.time()), 0.5) or 0.0
        await load.run(CALM_SECONDS, ALONE, limits=limits)
        lone = await load.run(LONE_PART * seconds, LONE, limits=limits, to_the_end=True)
        lone_free = await load.run(LONE_PART * seconds, LONE, to_the_end=True)
        recovery = await _recovery(load, limits, seconds)
        free = await load.run(seconds, FLOOD, leave=True)
    quiet = alone.p99()
    return [
        Figure(f"quiet_p99_ratio_{name}", served.p99() / quiet, "ratio", free.p99() / quiet),
        Figure(f"quiet_p99_seconds_{name}", served.p99(), "s", free.p99()),
        Figure(f"quiet_p99_seconds_{name}_alone", quiet, "s"),
        Figure(f"throughput_ratio_{name}", served.completed / free.completed, "ratio", 1.0),
        Figure(f"lone_makespan_ratio_{name}", lone.makespan / lone_free.makespan, "ratio", 1.0),
        Figure(f"fresh_recovery_ratio_{name}", recovery, "ratio", 1.0),
        Figure(f"freshness_p50_seconds_{name}", fresh, "s"),
        Figure(f"reaction_seconds_{name}", seconds if reacted.cancelled() else reacted.result(), "s"),
        Figure(f"quiet_p99_seconds_{name}_settled", served.p99(since=SETTLED * seconds), "s", free.p99()),
    ]


async def _reaction(limits: sojourn.Limits) -> float:
    """After how many seconds the producers' client knows of the first limit, or that the queue is congested."""
    began = time.monotonic()
    while not (limits.in_force() or limits.congested()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def _recovery(load: Load, limits: sojourn.Limits, seconds: float) -> float:
    """Four tenants dump ten times the capacity and go on with a part of it: until what comes is fresh again ÷ the least
    time in which consumers can finish what is older."""
    dump = round(seconds / 24 * 9 * CAPACITY)
    rates = {f"equal-{n}": AFTERWARDS * CAPACITY / 4 for n in range(4)}
    least = (dump - FRESH_SECONDS * CAPACITY) / (CAPACITY * (1 - AFTERWARDS))
    dumped = dict.fromkeys(rates, dump // 4)
    seen = await load.run(1.5 * least, rates, limits=limits, to_the_end=True, dumped=dumped)
    return seen.fresh_since(FRESH_SECONDS) / least
