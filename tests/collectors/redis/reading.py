"""Reading a real server as the sampler does, and what holds for every sample."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from collectors.redis.settings import RedisBroker
from collectors.redis.source import RedisSource
from collectors.samples import METRIC_NAMES, Sample
from tests.support.redis import RedisServer

Named = dict[tuple[str, str | None], Sample]


def source(server: RedisServer, **settings: Any) -> RedisSource:
    """Our source for ``server``."""
    return RedisSource(RedisBroker.model_validate({"url": server.url, "discover_every": 0, **settings}))


def named(samples: Sequence[Sample]) -> Named:
    """(queue, subscriber) → sample; each is told once, and each null has a reason."""
    found: Named = {}
    for sample in samples:
        assert (sample.queue, sample.subscriber) not in found, "told twice"
        unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None} - {"dead_letter_for"}
        assert set(sample.unavailable) - {"dead_letter_for", "tenants"} == unknown, sample
        found[sample.queue, sample.subscriber] = sample
    return found


def read(server: RedisServer, **settings: Any) -> Named:
    """One reading by a source of its own."""

    async def work() -> Sequence[Sample]:
        one = source(server, **settings)
        await one.open()
        try:
            return await one.read()
        finally:
            await one.close()

    return named(asyncio.run(work()))


def counts(sample: Sample) -> tuple[int | None, int | None, int | None]:
    """(depth, in flight, delayed)."""
    return sample.depth, sample.in_flight, sample.delayed
