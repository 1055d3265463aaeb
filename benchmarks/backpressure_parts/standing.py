"""What quiet tenants gain where consumers take messages in order: by standing entitlements alone, by caps alone.

The whole way is real: the broker's tap, Spark, the alert process, its limits API and clients that obey it. First the
quiet tenants alone, then 12:1 as in the part ``fair``; last, what neither may cost: a lone tenant at twice the
capacity, and a backlog of ten times the capacity.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sojourn
from benchmarks.backpressure_parts.fair import ALONE, FLOOD, LONE, LONE_PART, SECONDS
from benchmarks.backpressure_parts.load import CAPACITY, STREAM, consumer_in_order, in_order, run, stream
from benchmarks.backpressure_parts.watched import freshness, watched
from benchmarks.figures import Figure
from sojourn.demo.measure import quantile
from tests.support.nats import NatsServer

ENTITLED = f"""\
[[alert.control.entitlements]]
broker = "nats"
queue = "{STREAM}"
"""
CAP = """\
[[alert.control.policies]]
name = "throttle-noisy"
mode = "auto"
"""
#: Quiet tenants' calm before each flood: metrics must know the queue.
CALM_SECONDS = 15.0
#: Of what comes with the backlog, and when it counts as fresh (seconds).
AFTERWARDS, FRESH_SECONDS = 0.4, 3.0


def measure(scale: float) -> Iterator[Figure]:
    """Ratios to the same tenants alone in the same run; the baselines are no control at all."""
    seconds = max(10.0, SECONDS * scale)
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        root = Path(folder)
        for name, control in (("entitled", ENTITLED), ("cap", CAP)):
            (root / name).mkdir()
            with NatsServer(root / name / "nats") as server:
                yield from asyncio.run(_measured(name, server.url, root / name, control, seconds))


async def _measured(name: str, url: str, folder: Path, control: str, seconds: float) -> list[Figure]:
    async with stream(url) as jetstream:
        await consumer_in_order(jetstream)
        with watched(url, folder, control) as sojourn_, freshness(sojourn_.lake) as lags, sojourn_.limits() as limits:
            while not lags.first_metrics:
                await run(jetstream, 2.0, ALONE, in_order, limits=limits)
            await run(jetstream, CALM_SECONDS, ALONE, in_order, limits=limits)
            alone = await run(jetstream, seconds, ALONE, in_order, limits=limits)
            served = await run(jetstream, seconds, FLOOD, in_order, limits=limits)
            lone = await run(jetstream, LONE_PART * seconds, LONE, in_order, limits=limits, to_the_end=True)
            lone_free = await run(jetstream, LONE_PART * seconds, LONE, in_order, to_the_end=True)
            recovery = await _recovery(jetstream, limits, seconds)
            free = await run(jetstream, seconds, FLOOD, in_order, leave=True)
    quiet = alone.p99()
    return [
        Figure(f"quiet_p99_ratio_{name}", served.p99() / quiet, "ratio", free.p99() / quiet),
        Figure(f"quiet_p99_seconds_{name}", served.p99(), "s", free.p99()),
        Figure(f"quiet_p99_seconds_{name}_alone", quiet, "s"),
        Figure(f"throughput_ratio_{name}", served.completed / free.completed, "ratio", 1.0),
        Figure(f"lone_makespan_ratio_{name}", lone.makespan / lone_free.makespan, "ratio", 1.0),
        Figure(f"fresh_recovery_ratio_{name}", recovery, "ratio", 1.0),
        Figure(f"freshness_p50_seconds_{name}", quantile(lags.between(0, math.inf), 0.5) or 0.0, "s"),
    ]


async def _recovery(jetstream: Any, limits: sojourn.Limits, seconds: float) -> float:
    """Four tenants dump ten times the capacity and go on with a part of it: until what comes is fresh again ÷ the least
    time in which consumers can finish what is older."""
    dump = round(seconds / 24 * 9 * CAPACITY)
    rates = {f"equal-{n}": AFTERWARDS * CAPACITY / 4 for n in range(4)}
    least = (dump - FRESH_SECONDS * CAPACITY) / (CAPACITY * (1 - AFTERWARDS))
    dumped = dict.fromkeys(rates, dump // 4)
    seen = await run(jetstream, 1.5 * least, rates, in_order, limits=limits, to_the_end=True, dumped=dumped)
    return seen.fresh_since(FRESH_SECONDS) / least
