"""Makes the collectors of a Redis server."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.redis.settings import RedisBroker
from collectors.redis.source import RedisSource
from collectors.sampler import Sampler


def make(broker: RedisBroker, context: Context) -> list[Collector]:
    """A sampler. There is no tap: Redis tells nobody of single messages."""
    return (
        [Sampler("redis", broker.name, RedisSource(broker), context, broker.sample_interval)] if broker.sample else []
    )
