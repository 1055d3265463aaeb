"""Reading the real node with our source, as often as it takes for its statistics to arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from collectors.rabbitmq.settings import RabbitBroker
from collectors.rabbitmq.source import RabbitSource
from collectors.samples import METRIC_NAMES, Sample
from tests.support.waiting import PATIENCE


@asynccontextmanager
async def opened(broker: RabbitBroker, interval: float = 10.0) -> AsyncIterator[RabbitSource]:
    """A source that is open; ``interval`` is its cycle's, in seconds."""
    source = RabbitSource(broker, interval)
    await source.open()
    try:
        yield source
    finally:
        await source.close()


async def read(source: RabbitSource) -> dict[str, Sample]:
    """One reading by queue; every null has its reason and no other has one."""
    found = {sample.queue: sample for sample in await source.read()}
    for sample in found.values():
        unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None}
        assert unknown - set(sample.unavailable) <= {"dead_letter_for"}, sample
        assert set(sample.unavailable) <= unknown, sample
        assert all(sample.unavailable.values())
    return found


async def read_until(source: RabbitSource, enough: Callable[[dict[str, Sample]], bool]) -> dict[str, Sample]:
    """The first reading that is ``enough``; a queue that is not there yet is none."""
    deadline = time.monotonic() + PATIENCE * 20
    while True:
        found = await read(source)
        try:
            if enough(found):
                return found
        except KeyError:
            pass
        assert time.monotonic() < deadline, f"not told within 20 s; queues: {sorted(found)}"
        await asyncio.sleep(0.1)
