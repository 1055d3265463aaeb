"""Reading a broker as the sampler does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from collectors.kafka.settings import KafkaBroker
from collectors.kafka.source import KafkaSource
from collectors.samples import METRIC_NAMES, Sample

Result = TypeVar("Result")

#: What may be null without a reason.
_FREE = {"dead_letter_for"}


def settings(bootstrap: str, *topics: str, **changes: Any) -> KafkaBroker:
    """A cluster of which ``topics`` are read, or all."""
    chosen = {"bootstrap": bootstrap, "name": "mq", "topics": {"include": topics or ("*",)}, **changes}
    return KafkaBroker.model_validate(chosen)


def using(broker: KafkaBroker, work: Callable[[KafkaSource], Awaitable[Result]]) -> Result:
    """What ``work`` returns, given an open source."""

    async def run() -> Result:
        source = KafkaSource(broker)
        try:
            await source.open()
            return await work(source)
        finally:
            await source.close()

    return asyncio.run(run())


def read(broker: KafkaBroker) -> dict[tuple[str, str | None], Sample]:
    """One reading: (topic, group) → sample."""
    return using(broker, read_once)


async def read_once(source: KafkaSource) -> dict[tuple[str, str | None], Sample]:
    """One reading of an open source."""
    return by_name(await source.read())


def by_name(samples: Sequence[Sample]) -> dict[tuple[str, str | None], Sample]:
    """(topic, group) → sample; each once, and what is null has a reason, and nothing else but unknown partitions."""
    found = {(sample.queue, sample.subscriber): sample for sample in samples}
    assert len(found) == len(samples)
    for sample in samples:
        unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None} - _FREE
        unknown |= {"unknown_partitions"} if sample.unknown_partitions else set()
        assert unknown == set(sample.unavailable), sample
        assert all(sample.unavailable.values())
    return found
