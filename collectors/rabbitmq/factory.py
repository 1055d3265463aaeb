"""Makes the collectors of a RabbitMQ broker."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.rabbitmq.settings import RabbitBroker
from collectors.rabbitmq.source import RabbitSource
from collectors.sampler import Sampler


def make(broker: RabbitBroker, context: Context) -> list[Collector]:
    """A sampler; it reads twice while the broker renews its statistics once, as more often would tell nothing new."""
    if not broker.sample:
        return []
    interval = max(broker.sample_interval or context.settings.sample_interval, broker.statistics_interval / 2)
    return [Sampler("rabbitmq", broker.name, RabbitSource(broker, interval), context, interval)]
