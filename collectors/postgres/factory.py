"""Makes the collector of a PostgreSQL database."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.postgres.settings import PostgresBroker
from collectors.postgres.source import PostgresSource
from collectors.sampler import Sampler


def make(broker: PostgresBroker, context: Context) -> list[Collector]:
    """A sampler. There is no tap: single jobs are told of by the application."""
    if not broker.sample:
        return []
    return [Sampler("postgres", broker.name, PostgresSource(broker), context, broker.sample_interval)]
