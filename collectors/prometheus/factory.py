"""Makes the collectors of a broker that is read by its metrics."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.prometheus.settings import PrometheusBroker
from collectors.prometheus.source import PrometheusSource
from collectors.sampler import Sampler


def make(broker: PrometheusBroker, context: Context) -> list[Collector]:
    """A sampler."""
    if not broker.sample:
        return []
    return [Sampler("prometheus", broker.name, PrometheusSource(broker), context, broker.sample_interval)]
