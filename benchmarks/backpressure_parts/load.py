"""Open-loop load on a real NATS broker: Poisson senders that heed nobody but limits, and twelve workers of 0.1 s each.

Tenants have a subject each of the stream ``orders``. An age is from when a message was due to when its first attempt
begins, the time that its producer was held back included.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

import sojourn
from sojourn.client.adapters.nats import FairSubjects

STREAM, IN_ORDER = "orders", "in-order"
WORKERS, WORK_SECONDS = 12, 0.1
CAPACITY = WORKERS / WORK_SECONDS
#: What is still waiting after so long is left.
DRAIN_SECONDS = 180.0
Handle = Callable[[Any], Awaitable[None]]
Consume = Callable[[Any, Handle], Awaitable[None]]


@dataclass(slots=True)
class Seen:
    """What one run saw, in seconds since it began: first attempts (when, tenant, age) and completions."""

    seconds: float
    first_attempts: list[tuple[float, str, float]] = field(default_factory=list)
    completions: list[float] = field(default_factory=list)
    sent: int = 0

    @property
    def completed(self) -> int:
        """Completed while it was sent to: there was demand all the time."""
        return sum(at < self.seconds for at in self.completions)

    @property
    def makespan(self) -> float:
        """When the last message was completed."""
        return max(self.completions)

    def p99(self, prefix: str = "quiet", since: float = 0.0) -> float:
        """Of the ages of tenants called so whose first attempt was while it was sent to, by nearest rank; ``since``
        then (seconds)."""
        told = ((at, age) for at, name, age in self.first_attempts if name.startswith(prefix))
        ages = sorted(age for at, age in told if since <= at < self.seconds)
        return ages[math.ceil(0.99 * len(ages)) - 1]

    def fresh_since(self, target: float) -> float:
        """From when on no message was older than ``target`` at its first attempt."""
        return max((at for at, _, age in self.first_attempts if age > target), default=0.0)


@asynccontextmanager
async def stream(url: str) -> AsyncIterator[Any]:
    """The work queue and its consumer in order of arrival, recreated; yields nats-py's context."""
    client = await nats.connect(url)
    jetstream = client.jetstream(timeout=30, publish_async_max_pending=10_000)
    with contextlib.suppress(Exception):
        await jetstream.delete_stream(STREAM)
    await jetstream.add_stream(name=STREAM, subjects=[f"{STREAM}.*"], retention=RetentionPolicy.WORK_QUEUE)
    try:
        yield jetstream
    finally:
        await jetstream.delete_stream(STREAM)
        await client.close()


async def consumer_in_order(jetstream: Any) -> None:
    """Make the one consumer of all tenants, as its owner would."""
    config = ConsumerConfig(durable_name=IN_ORDER, ack_policy=AckPolicy.EXPLICIT, ack_wait=60)
    await jetstream.add_consumer(STREAM, config)


@asynccontextmanager
async def consuming(jetstream: Any, consume: Consume) -> AsyncIterator[Load]:
    """Consumers that stay over several runs: a request that one of them left behind would take messages along."""
    load = Load(jetstream)
    task = asyncio.create_task(consume(jetstream, load.handle))
    try:
        yield load
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Load:
    """Sends to a stream, run by run, and sees what its consumers do."""

    def __init__(self, jetstream: Any) -> None:
        self._jetstream = jetstream
        self._began, self._seen, self._work = 0.0, Seen(0.0), random.Random(1)

    async def handle(self, message: Any) -> None:
        """Work on a message, and acknowledge it."""
        began, seen, at = self._began, self._seen, time.monotonic()
        seen.first_attempts.append((at - began, message.subject.split(".")[1], at - float(message.data)))
        await asyncio.sleep(self._work.expovariate(1 / WORK_SECONDS))
        await message.ack()
        seen.completions.append(time.monotonic() - began)

    async def run(
        self,
        seconds: float,
        rates: Mapping[str, float],
        *,
        limits: sojourn.Limits | None = None,
        to_the_end: bool = False,
        leave: bool = False,
        dumped: Mapping[str, int] | None = None,
    ) -> Seen:
        """Send for ``seconds`` at ``rates`` (messages/s by tenant), the same each run, and wait until nothing waits.

        With ``leave`` it ends when sending does. What producers still hold back by then is not sent, unless
        ``to_the_end``. ``dumped`` messages come at once, at the beginning. Producers obey ``limits``.
        """
        began = self._began = time.monotonic()
        seen = self._seen = Seen(seconds)
        self._work = random.Random(1)

        async def send(tenant: str, rate: float) -> None:
            chance, due = random.Random(tenant), began
            left = (dumped or {}).get(tenant, 0)
            while left or (due := due + chance.expovariate(rate)) < began + seconds:
                left = max(0, left - 1)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if limits is not None:
                    await limits.wait(STREAM, tenant)
                await self._jetstream.publish_async(f"{STREAM}.{tenant}", repr(due).encode())
                seen.sent += 1

        sending = [asyncio.create_task(send(tenant, rate)) for tenant, rate in rates.items()]
        await asyncio.wait(sending, timeout=seconds + (DRAIN_SECONDS if to_the_end else 0.0))
        for task in sending:
            task.cancel()
        until = time.monotonic() + DRAIN_SECONDS
        while not leave and len(seen.completions) < seen.sent and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.gather(*sending, return_exceptions=True)
        return seen


async def fair(jetstream: Any, handle: Handle, **settings: Any) -> None:
    """Start-time fair queueing over the tenants' subjects."""
    consumer = FairSubjects(jetstream, STREAM, f"{STREAM}.*", handle, workers=WORKERS, **settings)
    try:
        await consumer.run()
    finally:
        consumer.stop()


async def in_order(jetstream: Any, handle: Handle) -> None:
    """Twelve workers, each with a message at a time."""

    async def work() -> None:
        queue = await jetstream.pull_subscribe_bind(IN_ORDER, STREAM)
        while True:
            try:
                (message,) = await queue.fetch(1, timeout=20)
            except TimeoutError:
                continue
            await handle(message)

    await asyncio.gather(*(work() for _ in range(WORKERS)))
