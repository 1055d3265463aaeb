"""Makes the collectors of a NATS server."""

from __future__ import annotations

from collectors.base import Collector
from collectors.nats.sampler import NatsSampler
from collectors.nats.tap import NatsTap
from collectors.selfmetrics import SelfMetrics
from collectors.settings import BrokerSettings, CollectSettings
from collectors.writer import Writer


def make(broker: BrokerSettings, settings: CollectSettings, writer: Writer, metrics: SelfMetrics) -> list[Collector]:
    """A sampler, and a tap if streams are listed for it."""
    collectors: list[Collector] = []
    if broker.sample:
        collectors.append(NatsSampler(broker, settings, writer, metrics))
    if broker.tap.enabled and broker.streams:
        collectors.append(NatsTap(broker, settings, writer, metrics))
    return collectors
