"""Makes the collectors of a Kafka cluster."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.source import KafkaSource
from collectors.kafka.tap.tap import KafkaTap
from collectors.sampler import Sampler


def make(broker: KafkaBroker, context: Context) -> list[Collector]:
    """A sampler, and a header tap if topics are listed for it."""
    collectors: list[Collector] = []
    if broker.sample:
        skewed = context.metrics.skewed.labels(f"kafka-sampler:{broker.name}")
        collectors.append(
            Sampler("kafka", broker.name, KafkaSource(broker, skewed.inc), context, broker.sample_interval)
        )
    if broker.tap.topics:
        collectors.append(KafkaTap(broker, context))
    return collectors
