"""The newest samples as Prometheus metrics: ``sojourn_queue_<metric>{broker, queue, subscriber}``, after the catalogue.

What is unknown is absent, never 0. A sampler that reads nothing now shows nothing (:mod:`collectors.board`), so that a
graph has a gap rather than a flat line. Text or OpenMetrics is negotiated by the server that this is registered with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.board import Board
from collectors.samples import Sample, TenantShare
from lake.catalogue import SAMPLE_METRICS

PREFIX = "sojourn_queue_"
LABELS = ("broker", "queue", "subscriber")
TEXTS = tuple(metric.name for metric in SAMPLE_METRICS if metric.kind == "text")
#: What is told of each tenant, too.
SHARED = tuple(field.name for field in fields(TenantShare) if field.name != "tenant")
_US = 1_000_000


class Exposition(Collector):
    """Registered with a prometheus_client registry; one scrape reads the board once."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> list[Metric]:
        """Nothing ahead of the first scrape: names are the catalogue's, which is checked elsewhere."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family that has a value, each series once: of two samples of one queue the newer counts."""
        newest: dict[tuple[str, str, str], Sample] = {}
        for broker, samples in self._board.newest():
            for sample in samples:
                key = (broker, _printable(sample.queue), _printable(sample.subscriber or ""))
                known = newest.get(key)
                if known is None or known.sampled_at <= sample.sampled_at:
                    newest[key] = sample
        for metric in SAMPLE_METRICS:
            if metric.kind == "text":
                continue
            name, kind = PREFIX + metric.name, CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=LABELS)
            for key, sample in newest.items():
                value = getattr(sample, metric.name)
                if value is not None:
                    family.add_metric(key, float(value))
            if family.samples:
                yield family
        yield from _of_tenants(newest)
        yield from self._texts(newest)

    def _texts(self, newest: dict[tuple[str, str, str], Sample]) -> Iterator[Metric]:
        info = InfoMetricFamily("sojourn_queue", "Facts about a queue that are not numbers", labels=LABELS)
        sampled = GaugeMetricFamily(
            f"{PREFIX}sampled_timestamp_seconds", "When the queue was sampled, unix time", labels=LABELS
        )
        for key, sample in newest.items():
            sampled.add_metric(key, sample.sampled_at / _US)
            facts = {name: _printable(value) for name in TEXTS if (value := getattr(sample, name)) is not None}
            if facts:
                info.add_metric(key, facts)
        yield from (family for family in (info, sampled) if family.samples)


def _of_tenants(newest: dict[tuple[str, str, str], Sample]) -> Iterator[Metric]:
    """``sojourn_queue_tenant_<metric>``: for each tenant, where settings say how one is found."""
    if not any(sample.tenants for sample in newest.values()):
        return
    for metric in SAMPLE_METRICS:
        if metric.name not in SHARED:
            continue
        family = GaugeMetricFamily(f"{PREFIX}tenant_{metric.name}", metric.help, labels=(*LABELS, "tenant"))
        for key, sample in newest.items():
            for share in sample.tenants or ():
                value = getattr(share, metric.name)
                if value is not None:
                    family.add_metric((*key, _printable(share.tenant)), float(value))
        if family.samples:
            yield family


def _printable(text: str) -> str:
    """``text`` as UTF-8 can hold it: a queue whose name is not valid text must not spoil everybody's scrape."""
    return text.encode("utf-8", "replace").decode()
