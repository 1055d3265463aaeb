"""The Kafka header tap, from a topic into durable bronze, and the Kafka transport, from rows to a transaction's end.

The tap's baseline is librdkafka's consumer, in this same process, only reading the same records; the transport's is its
producer, only sending the same values, without transactions and without making them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.figures import Figure
from collectors.board import Board
from collectors.context import Context
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.tap.tap import KafkaTap
from collectors.records import Event, events_table, now_us
from collectors.selfmetrics import SelfMetrics
from collectors.settings import CollectSettings
from collectors.transport.bronze import KafkaBronze
from collectors.transport.encode import Encoder
from collectors.transport.settings import TransportSettings
from collectors.writer import Writer
from lake.store import Lake, conform
from lake.tables import MESSAGE_EVENTS
from tests.support.kafka import KafkaServer

_MESSAGES, _PARTITIONS, _TENANTS = 600_000, 8, 1000
_TOPIC, _GROUP = "bench-tap", "bench-readers"
_ROWS = 200_000


def measure(scale: float) -> Iterator[Figure]:
    """Messages and rows a second, each beside the raw client's."""
    messages, rows = max(10_000, round(_MESSAGES * scale)), max(10_000, round(_ROWS * scale))
    with tempfile.TemporaryDirectory() as folder:
        server = KafkaServer(Path(folder) / "kafka", heap="512m")
        try:
            server.start()
            _fill(server, messages)
            raw = _raw(server.bootstrap, messages)
            arrivals, lives = asyncio.run(_tap(server, Lake(Path(folder) / "lake"), messages))
            yield Figure("kafka_tap_messages_per_second", arrivals, "1/s", raw)
            yield Figure("kafka_tap_completions_per_second", lives, "1/s", raw)
            sent, baseline = _transport(server, Lake(Path(folder) / "other"), rows)
            yield Figure("kafka_transport_rows_per_second", sent, "1/s", baseline)
        finally:
            server.stop()


def _fill(server: KafkaServer, messages: int) -> None:
    server.make_topics(_TOPIC, partitions=_PARTITIONS)
    producer = Producer({"bootstrap.servers": server.bootstrap, "queue.buffering.max.messages": 2_000_000})
    tenants = [[("trace", b"0123456789abcdef"), ("tenant", b"tenant-%d" % number)] for number in range(_TENANTS)]
    for number in range(messages):
        key = b"key-%d" % number
        producer.produce(_TOPIC, b"x" * 200, key, partition=number % _PARTITIONS, headers=tenants[number % _TENANTS])
    assert producer.flush(60) == 0
    server.commit(_GROUP, _TOPIC, dict.fromkeys(range(_PARTITIONS), 0))


def _raw(bootstrap: str, messages: int) -> float:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "raw", "enable.auto.commit": False})
    consumer.assign([TopicPartition(_TOPIC, partition, 0) for partition in range(_PARTITIONS)])
    read, started = 0, time.perf_counter()
    while read < messages:
        read += sum(message.error() is None for message in consumer.consume(20_000, timeout=0.1))
    seconds = time.perf_counter() - started
    consumer.close()
    return messages / seconds


async def _tap(server: KafkaServer, lake: Lake, messages: int) -> tuple[float, float]:
    """Arrivals a second; then, when the group has committed all of them, completions (two rows each) a second."""
    lake.create()
    pa.array([0])  # pyarrow's first array looks for pandas, a second that is no part of reading Kafka
    tap_settings = {"topics": [{"name": _TOPIC, "groups": [_GROUP]}], "max_unfinished": messages}
    broker = KafkaBroker.model_validate({"bootstrap": server.bootstrap, "tap": tap_settings})
    metrics = SelfMetrics()
    writer = Writer(lake)
    tap = KafkaTap(broker, Context(CollectSettings(), writer, metrics, Board()))
    written = metrics.records.labels(tap.name)
    await tap.open()
    started = time.perf_counter()
    while written._value.get() < messages:
        await tap.step()
    arrived = time.perf_counter() - started
    share, more = divmod(messages, _PARTITIONS)
    server.commit(_GROUP, _TOPIC, {partition: share + (partition < more) for partition in range(_PARTITIONS)})
    started = time.perf_counter()
    while written._value.get() < 3 * messages:
        await tap.step()
    ended = time.perf_counter() - started
    await tap.close()
    writer.close()
    assert lake.read("message_events", columns=["attempt"]).num_rows == 3 * messages
    return messages / arrived, messages / ended


def _transport(server: KafkaServer, lake: Lake, rows: int) -> tuple[float, float]:
    settings = TransportSettings(kind="kafka", bootstrap=server.bootstrap)
    bronze = KafkaBronze(settings, lake)
    batches = [_events(rows // 10, number) for number in range(10)]
    bronze.committed("message_events", "bench@1")  # connect, make the topics
    started = time.perf_counter()
    for number, batch in enumerate(batches):
        bronze.append("message_events", batch, app_id="bench@1", version=number + 1)
    sent = sum(batch.num_rows for batch in batches) / (time.perf_counter() - started)
    encoder = Encoder()
    values = [record for batch in batches for record in encoder.records("message_events", batch)]
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": "all",
            "compression.type": "zstd",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    started = time.perf_counter()
    for key, value in values:
        producer.produce(f"{settings.prefix}.message_events", value, key)
    assert producer.flush(60) == 0
    return sent, len(values) / (time.perf_counter() - started)


def _events(count: int, seed: int) -> pa.Table:
    now = now_us()
    events = [
        Event("enqueued", f"queue-{n % 20}", None, f"tenant-{n % _TENANTS}", f"{seed}-{n}", None, now, now)
        for n in range(count)
    ]
    return conform(events_table(events, "mq", "bench"), MESSAGE_EVENTS.schema)
