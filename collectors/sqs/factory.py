"""Makes the collector of one account and region of SQS."""

from __future__ import annotations

from collectors.base import Collector
from collectors.context import Context
from collectors.sampler import Sampler
from collectors.sqs.settings import SqsBroker
from collectors.sqs.source import SqsSource


def make(broker: SqsBroker, context: Context) -> list[Collector]:
    """A sampler at the broker's own interval: here each reading costs money, and the counts take a minute to settle."""
    if not broker.sample:
        return []
    return [Sampler("sqs", broker.name, SqsSource(broker), context, broker.sample_interval)]
