"""What the collectors say of themselves, for Prometheus and for the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from lake.errors import UserError

log = logging.getLogger(__name__)


class SelfMetrics:
    """One registry for the process; every metric is labelled with the collector's name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        label = ["collector"]
        self.duration = Histogram(
            "sojourn_collector_step_seconds",
            "How long a collector's cycle took",
            label,
            registry=self.registry,
            buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.success = Gauge(
            "sojourn_collector_success", "1 if the collector's last cycle succeeded", label, registry=self.registry
        )
        self.records = Counter(
            "sojourn_collector_records", "Records written to the lake", label, registry=self.registry
        )
        self.buffered = Gauge(
            "sojourn_collector_buffered", "Events read and not yet in the lake", label, registry=self.registry
        )
        self.conflated = Counter(
            "sojourn_collector_conflated", "Events rolled up because the buffer was full", label, registry=self.registry
        )
        self.rejected = Counter(
            "sojourn_collector_rejected", "Records that could not be read", label, registry=self.registry
        )
        self.lost = Counter(
            "sojourn_collector_lost", "Records that the source discarded unread", label, registry=self.registry
        )
        self.unmatched = Gauge(
            "sojourn_collector_unmatched", "Ends of messages that were not known", label, registry=self.registry
        )
        self.commit_seconds = Histogram(
            "sojourn_collector_commit_seconds",
            "How long a commit to the lake took",
            label,
            registry=self.registry,
            buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )
        self.commit_lag = Gauge(
            "sojourn_collector_commit_lag_seconds",
            "Age of the newest event in the last commit, on the broker's clock against ours",
            label,
            registry=self.registry,
        )

    @contextmanager
    def timed(self, collector: str) -> Iterator[None]:
        """Measure one cycle; an exception that passes through marks it as failed."""
        with self.duration.labels(collector).time():
            try:
                yield
            except BaseException:
                self.success.labels(collector).set(0)
                raise
        self.success.labels(collector).set(1)

    def serve(self, port: int) -> int:
        """Expose the metrics on a loopback port (0: any free one) until the process ends; returns the port."""
        try:
            server, _ = start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except OSError as error:
            raise UserError(
                f"port {port} for the collectors' metrics is taken: {error.strerror}",
                "set another collect.metrics_port",
            ) from None
        log.info("collectors' metrics on http://127.0.0.1:%s/metrics", server.server_port)
        return int(server.server_port)
