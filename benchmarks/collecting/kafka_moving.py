"""The Kafka sampler over 60,000 partitions, every one of which has moved since the cycle before.

What a cycle may read is bounded, so it knows some ages anew and tells of the others how old they are: what counts is
the time of a cycle, what it reads off the network, and how stale the oldest age is once every head was read. Each
record is a batch of its own, of a kilobyte: all heads together are far more than a cycle may bring, which is the
baseline of what it reads. The brokers are stood in for (benchmarks/collecting/kafka_standin.py), with a process of
their own; their time is in the cycle's.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.collecting.kafka_standin import standing_in
from benchmarks.figures import Figure
from brokers.kafka import link
from brokers.kafka.wire.codec import Reader
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.source import KafkaSource
from collectors.samples import Sample

_TOPICS, _PARTITIONS, _BYTES = 600, 100, 1000
_CYCLES = 40


def measure(scale: float) -> Iterator[Figure]:
    """The median cycle's seconds, the most that one read, and the staleness of ages when each head had been read."""
    topics = max(1, round(_TOPICS * scale))
    with standing_in(topics, _PARTITIONS, _BYTES) as bootstrap:
        seconds, processor, most, staleness, known_after = asyncio.run(_moving(bootstrap))
    heads = topics * _PARTITIONS * _BYTES / (1 << 20)
    yield Figure("kafka_60k_partitions_moving_seconds", seconds, "s")
    yield Figure("kafka_60k_partitions_moving_cpu_seconds", processor, "s")
    yield Figure("kafka_60k_partitions_moving_mib", most / (1 << 20), "MiB a cycle", heads)
    yield Figure("kafka_60k_partitions_staleness_seconds", staleness, "s")
    yield Figure("kafka_60k_partitions_known_after_seconds", known_after, "s")


async def _moving(bootstrap: str) -> tuple[float, float, float, float, float]:
    """Seconds of a cycle, and of our processor in it, the most bytes that one brought, the greatest staleness at the
    end, and after how many seconds every age was known."""
    brought = _counted()
    source = KafkaSource(KafkaBroker(bootstrap=bootstrap))
    await source.open()
    seconds, processor, read = list[float](), list[float](), list[int]()
    samples, known_after = list[Sample](), 0.0
    started = time.monotonic()
    try:
        for _ in range(_CYCLES):
            began, worked, before = time.perf_counter(), time.process_time(), brought()
            samples = list(await source.read())
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - worked)
            read.append(brought() - before)
            if not known_after and all(sample.oldest_age_seconds is not None for sample in samples):
                known_after = time.monotonic() - started
            await asyncio.sleep(max(0.0, 1.0 - seconds[-1]))
    finally:
        await source.close()
    unknown = [sample.unavailable["oldest_age_seconds"] for sample in samples if sample.oldest_age_seconds is None]
    assert not unknown, unknown[:3]
    staleness = max(sample.staleness_seconds or 0.0 for sample in samples)
    return statistics.median(seconds), statistics.median(processor), max(read), staleness, known_after


def _counted() -> Callable[[], int]:
    """How many bytes all connections of ours have received, from now on."""
    received = 0
    receive = link.Link.receive

    def counting(self: link.Link) -> Reader:
        nonlocal received
        answer = receive(self)
        received += len(answer.data)
        return answer

    link.Link.receive = counting  # type: ignore[method-assign]
    return lambda: received
