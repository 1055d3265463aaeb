"""What quiet tenants gain by a fair order on a real NATS broker: 12:1, open loop, and the same tenants alone.

Seven tenants send 10/s, an eighth twelve times as much, to twelve workers of 0.1 s each (exponential): 190/s for a
capacity of 120/s. An age is from just before a message is published to when its first attempt begins.
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.js.api import RetentionPolicy

from benchmarks.figures import Figure
from sojourn.client.adapters.nats import FairSubjects
from tests.support.nats import NatsServer

SECONDS, WORKERS, WORK_SECONDS, QUIET, RATE, TIMES = 120.0, 12, 0.1, 7, 10.0, 12
STREAM = "orders"
Handle = Callable[[Any], Awaitable[None]]


def measure(scale: float) -> Iterator[Figure]:
    """The ratios are to the quiet tenants alone, served by the same consumer; the baseline is a consumer in order."""
    seconds = max(5.0, SECONDS * scale)
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder, NatsServer(Path(folder) / "nats") as server:
        alone = asyncio.run(_run(server.url, seconds, flood=False, fair=True))
        fair = asyncio.run(_run(server.url, seconds, flood=True, fair=True))
        in_order = asyncio.run(_run(server.url, seconds, flood=True, fair=False))
    quiet = alone.p99()
    yield Figure("quiet_p99_ratio_fair", fair.p99() / quiet, "ratio", in_order.p99() / quiet)
    yield Figure("quiet_p99_seconds_fair", fair.p99(), "s", in_order.p99())
    yield Figure("quiet_p99_seconds_alone", quiet, "s")
    yield Figure("throughput_ratio_fair", fair.completed / in_order.completed, "ratio", 1.0)


@dataclass(slots=True)
class Seen:
    """What one run saw while it was sent to: ages of the quiet tenants' messages, and how many were completed."""

    until: float
    ages: list[float] = field(default_factory=list)
    completed: int = 0

    def p99(self) -> float:
        """By nearest rank."""
        return sorted(self.ages)[math.ceil(0.99 * len(self.ages)) - 1]


async def _run(url: str, seconds: float, *, flood: bool, fair: bool) -> Seen:
    client = await nats.connect(url)
    jetstream = client.jetstream(timeout=30, publish_async_max_pending=10_000)
    await jetstream.add_stream(name=STREAM, subjects=[f"{STREAM}.*"], retention=RetentionPolicy.WORK_QUEUE)
    rates = {f"quiet-{number}": RATE for number in range(QUIET)}
    if flood:
        rates["flood"] = RATE * TIMES
    began = time.monotonic()
    seen, work = Seen(began + seconds), random.Random(1)

    async def handle(message: Any) -> None:
        started = time.monotonic()
        tenant = message.subject.split(".")[1]
        if tenant != "flood" and started < seen.until:
            seen.ages.append(started - float(message.data))
        await asyncio.sleep(work.expovariate(1 / WORK_SECONDS))
        await message.ack()
        seen.completed += time.monotonic() < seen.until

    consumer = _fair(jetstream, handle) if fair else _in_order(jetstream, handle)
    consuming = asyncio.create_task(consumer)
    await asyncio.gather(*(_send(jetstream, tenant, rate, began, seconds) for tenant, rate in rates.items()))
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    await jetstream.delete_stream(STREAM)
    await client.close()
    return seen


async def _send(jetstream: Any, tenant: str, rate: float, began: float, seconds: float) -> None:
    """A Poisson process that heeds nobody; the same each run."""
    chance, due = random.Random(tenant), began
    while (due := due + chance.expovariate(rate)) < began + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await jetstream.publish_async(f"{STREAM}.{tenant}", repr(time.monotonic()).encode())


async def _fair(jetstream: Any, handle: Handle) -> None:
    consumer = FairSubjects(jetstream, STREAM, f"{STREAM}.*", handle, workers=WORKERS)
    try:
        await consumer.run()
    finally:
        consumer.stop()


async def _in_order(jetstream: Any, handle: Handle) -> None:
    """Twelve workers, each with a message at a time."""

    async def work() -> None:
        queue = await jetstream.pull_subscribe(f"{STREAM}.*", durable="in-order", stream=STREAM)
        while True:
            try:
                (message,) = await queue.fetch(1, timeout=20)
            except TimeoutError:
                continue
            await handle(message)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
