"""The Kafka sampler over 60,000 partitions of three brokers, every one of which has moved since the cycle before.

What a cycle may read is bounded, so it knows some ages anew and tells of the others how old they are: what counts is
the time of a cycle, what it reads off the network, and the staleness of the oldest age once every head was read. Each
record is a batch of its own, of a kilobyte: all heads together are far more than a cycle may bring.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.figures import Figure
from collectors.kafka import link
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.source import KafkaSource
from collectors.kafka.wire.codec import Reader
from collectors.samples import Sample
from tests.support.kafka import KafkaServer

_TOPICS, _PARTITIONS, _BROKERS = 600, 100, 3
_RECORDS, _BYTES = 20, 1000
_GROUP = "readers"
#: Cycles are a second apart, and so many are made.
_CYCLES = 30
#: Small index files, mapped into memory by the ten thousand; few records, so few are written at once.
_PROPERTIES = {"log.index.size.max.bytes": "4096", "num.network.threads": "2", "num.io.threads": "2"}


def measure(scale: float) -> Iterator[Figure]:
    """The median cycle's seconds, the most that one read, and the staleness of ages when each head had been read."""
    names = [f"bench-{number:03}" for number in range(max(1, round(_TOPICS * scale)))]
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder, ExitStack() as stack:
        first = KafkaServer(Path(folder) / "0", heap="1g", properties=_PROPERTIES)
        stack.callback(first.stop)
        first.start()
        for number in range(1, _BROKERS):
            more = {"node.id": str(number + 1)} | _PROPERTIES
            server = KafkaServer(Path(folder) / str(number), heap="1g", properties=more, joining=first)
            stack.callback(server.stop)
            server.start()
        for start in range(0, len(names), 20):
            first.make_topics(*names[start : start + 20], partitions=_PARTITIONS)
        _fill(first.bootstrap, names)
        seconds, most, staleness = asyncio.run(_moving(first.bootstrap, names))
    partitions = len(names) * _PARTITIONS
    yield Figure("kafka_60k_partitions_moving_seconds", seconds, "s")
    yield Figure("kafka_60k_partitions_moving_mib", most / (1 << 20), "MiB a cycle", partitions * _BYTES / (1 << 20))
    yield Figure("kafka_60k_partitions_staleness_seconds", staleness, "s")


def _fill(bootstrap: str, names: list[str]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": 1, "queue.buffering.max.messages": 200_000}
    )
    for _ in range(_RECORDS):
        for name in names:
            for partition in range(_PARTITIONS):
                producer.produce(name, b"x" * _BYTES, partition=partition)
            producer.poll(0)
        assert producer.flush(600) == 0
    _commit(AdminClient({"bootstrap.servers": bootstrap}), names, 0)


def _commit(admin: AdminClient, names: list[str], offset: int) -> None:
    """Let the group have committed ``offset`` everywhere."""
    for start in range(0, len(names), 100):
        places = [
            TopicPartition(name, part, offset) for name in names[start : start + 100] for part in range(_PARTITIONS)
        ]
        asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(_GROUP, places)])
        for future in asked.values():
            future.result(120)


async def _moving(bootstrap: str, names: list[str]) -> tuple[float, float, float]:
    """Seconds of a cycle, the most bytes that one brought, and the oldest age's staleness at the end, in seconds."""
    brought = _counted()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    source = KafkaSource(KafkaBroker(bootstrap=bootstrap))
    await source.open()
    seconds, read, samples = list[float](), list[int](), list[Sample]()
    try:
        for cycle in range(_CYCLES):
            _commit(admin, names, 1 + cycle % (_RECORDS - 2))
            began, before = time.perf_counter(), brought()
            samples = list(await source.read())
            seconds.append(time.perf_counter() - began)
            read.append(brought() - before)
            await asyncio.sleep(max(0.0, 1.0 - seconds[-1]))
    finally:
        await source.close()
    unknown = [sample.unavailable["oldest_age_seconds"] for sample in samples if sample.oldest_age_seconds is None]
    assert not unknown, unknown[:3]
    return statistics.median(seconds), max(read[1:]), max(sample.staleness_seconds or 0.0 for sample in samples)


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
