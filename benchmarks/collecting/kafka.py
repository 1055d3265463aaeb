"""The Kafka sampler over 10,000 partitions of one broker, read by one group, each with its lag in messages and in time.

Two cycles matter. In the first every group has moved since the last cycle, so that one record of each partition is
read: the worst case, and the figure with the goal. In the second nothing has moved, and what is known is not read
again. The baseline is the vendor's client (librdkafka) doing the same reads: committed offsets, ends, and one record
of each partition.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.figures import Figure
from collectors.kafka.settings import KafkaBroker, StatusSettings
from collectors.kafka.source import KafkaSource
from tests.support.kafka import KafkaServer

_TOPICS, _PARTITIONS = 100, 100
_CYCLES = 5
_GROUP = "readers"


def measure(scale: float) -> Iterator[Figure]:
    """Seconds a cycle, beside the raw client's, and the memory of the process that samples."""
    topics = max(1, round(_TOPICS * scale))
    with tempfile.TemporaryDirectory() as folder:
        # Small index files: ten thousand partitions would otherwise map 20 MB each.
        server = KafkaServer(Path(folder) / "kafka", heap="1g", properties={"log.index.size.max.bytes": "4096"})
        try:
            server.start()
            _fill(server, topics)
            before = _memory()
            moved, standing, partitions = asyncio.run(_ours(server.bootstrap))
            ours = _memory()
            assert partitions == topics, (partitions, topics)
            raw = _raw(server.bootstrap, topics * _PARTITIONS)
        finally:
            server.stop()
    yield Figure("kafka_10k_partitions_seconds", moved, "s", raw)
    yield Figure("kafka_10k_partitions_standing_seconds", standing, "s", raw)
    yield Figure("kafka_collector_rss_mb", ours, "MB", before)


def _memory() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


def _fill(server: KafkaServer, topics: int) -> None:
    names = [f"bench-{number:03}" for number in range(topics)]
    for start in range(0, topics, 10):
        server.make_topics(*names[start : start + 10], partitions=_PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 100, "queue.buffering.max.messages": 1_000_000}
    )
    for _ in range(5):
        for name in names:
            for partition in range(_PARTITIONS):
                producer.produce(name, b"x" * 50, partition=partition)
    assert producer.flush(120) == 0
    for name in names:
        server.commit(_GROUP, name, dict.fromkeys(range(_PARTITIONS), 2))


async def _ours(bootstrap: str) -> tuple[float, float, int]:
    # A short window, so that groups are judged in the cycles that are measured, as they are once one has passed.
    source = KafkaSource(KafkaBroker(bootstrap=bootstrap, status=StatusSettings(interval=5, window=3)))
    await source.open()
    try:
        samples = await source.read()
        while any(sample.status is None for sample in samples):
            await asyncio.sleep(1)
            samples = await source.read()
        assert all(sample.oldest_age_seconds is not None for sample in samples)
        assert sum(sample.depth or 0 for sample in samples) == 3 * _PARTITIONS * len(samples)

        async def cycle(prepare: Callable[[], Any]) -> float:
            prepare()
            began = time.perf_counter()
            await source.read()
            return time.perf_counter() - began

        forget = source.reader.forget_heads
        moved = [await cycle(forget) for _ in range(_CYCLES)]
        standing = [await cycle(lambda: None) for _ in range(_CYCLES)]
        return statistics.median(moved), statistics.median(standing), len(samples)
    finally:
        await source.close()


def _raw(bootstrap: str, partitions: int) -> float:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "raw",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1024,
            "fetch.wait.max.ms": 10,
            "queued.min.messages": 1,
        }
    )

    def cycle() -> float:
        began = time.perf_counter()
        told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_GROUP)])[_GROUP].result(30)
        places: list[TopicPartition] = told.topic_partitions
        asked = admin.list_offsets({TopicPartition(one.topic, one.partition): OffsetSpec.latest() for one in places})
        ends = [future.result(30).offset for future in asked.values()]
        consumer.assign(places)
        read: dict[tuple[str, int], int] = {}
        while len(read) < partitions and time.perf_counter() - began < 60:
            for message in consumer.consume(10_000, 0.2):
                read.setdefault((message.topic(), message.partition()), message.timestamp()[1])
        assert len(ends) == len(read) == partitions
        return time.perf_counter() - began

    try:
        return statistics.median(cycle() for _ in range(3))
    finally:
        consumer.close()
