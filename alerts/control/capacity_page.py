"""What is advised of each queue's consumers, as JSON and as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from alerts.control.advisor import Capacity

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LABELS = ("broker", "queue", "subscriber")
#: Name, what it is, and where it is found. What is unknown has no sample.
_GAUGES: tuple[tuple[str, str, Callable[[Capacity], float | None]], ...] = (
    ("required_concurrency", "Messages in work at once that the queue needs", lambda one: one.advice.required),
    ("required_concurrency_low", "Lower bound of its 90 % interval", lambda one: one.advice.low),
    ("required_concurrency_high", "Upper bound of its 90 % interval", lambda one: one.advice.high),
    ("advised_consumers", "Consumers that there should be", lambda one: one.advice.consumers),
    ("consumers", "Consumers that there are", lambda one: one.consumers),
)


def as_json(one: Capacity, ahead: timedelta) -> dict[str, Any]:
    """``one`` as the API tells it; instants are the wall clock's, which is ``ahead`` of ours."""
    advice = one.advice
    return {
        **dict(zip(_LABELS, one.place, strict=True)),
        "at": (one.at + ahead).isoformat(),
        "advised_consumers": advice.consumers,
        "consumers": one.consumers,
        "required_concurrency": advice.required,
        "interval": None if advice.low is None else [advice.low, advice.high],
        "per_consumer": one.per_consumer,
        "reason": advice.reason,
    }


def exposition(capacities: Sequence[Capacity]) -> bytes:
    """``capacities`` in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Gauges(capacities))
    return generate_latest(registry)


class _Gauges:
    def __init__(self, capacities: Sequence[Capacity]) -> None:
        self._capacities = capacities

    def collect(self) -> Iterable[Metric]:
        for name, text, value_of in _GAUGES:
            family = GaugeMetricFamily(f"sojourn_capacity_{name}", text, labels=_LABELS)
            for one in self._capacities:
                if (value := value_of(one)) is not None:
                    family.add_metric(one.place, value)
            yield family
