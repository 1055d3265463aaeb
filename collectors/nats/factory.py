"""Makes the collectors of a NATS server."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.nats.sampler import NatsSource
from collectors.nats.settings import NatsBroker
from collectors.nats.tap import NatsTap
from collectors.sampler import Sampler


def make(broker: NatsBroker, context: Context) -> list[Collector]:
    """A sampler, and a tap if streams are listed for it."""
    collectors: list[Collector] = []
    named: set[str] = set()  # the tap tells the sampler which streams' subscribers have names
    if broker.sample:
        collectors.append(Sampler("nats", broker.name, NatsSource(broker, named), context, broker.sample_interval))
    if broker.tap.enabled and broker.streams:
        collectors.append(NatsTap(broker, context, named))
    return collectors
