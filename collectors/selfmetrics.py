"""What the collectors say of themselves, for Prometheus and for the log. Declared in :mod:`lake.catalogue`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lake.catalogue import OWN_METRICS, Metric
from lake.web.access import AccessControl
from lake.web.address import is_loopback
from lake.web.policy import Entrance, Limits, Policy
from lake.web.server import WebServer, listen

log = logging.getLogger(__name__)


class SelfMetrics:
    """One registry for the process; every metric of ours is labelled with the collector's name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made = {metric.name: self._make(metric) for metric in OWN_METRICS}

        def own(name: str) -> Any:
            return made[f"sojourn_collector_{name}"]

        self.duration: Histogram = own("step_seconds")
        self.success: Gauge = own("success")
        self.interval: Gauge = own("interval_seconds")
        self.records: Counter = own("records_total")
        self.buffered: Gauge = own("buffered")
        self.conflated: Counter = own("conflated_total")
        self.rejected: Counter = own("rejected_total")
        self.skewed: Counter = own("skewed_total")
        self.ahead: Counter = own("ahead_total")
        self.duplicates: Counter = own("duplicates_total")
        self.ignored: Counter = own("ignored_total")
        self.lost: Counter = own("lost_total")
        self.unmatched: Gauge = own("unmatched")
        self.forgotten: Gauge = own("forgotten")
        self.queues: Gauge = own("queues")
        self.unread_queues: Gauge = own("unread_queues")
        self.skipped_cycles: Counter = own("skipped_cycles_total")
        self.commit_seconds: Histogram = own("commit_seconds")
        self.commit_lag: Gauge = own("commit_lag_seconds")
        self.messages: Counter = made["sojourn_messages_total"]

    def _make(self, metric: Metric) -> Any:
        if metric.kind == "histogram":
            return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)
        kind: Any = {"counter": Counter, "gauge": Gauge}[metric.kind]
        return kind(metric.name, metric.help, metric.labels, registry=self.registry)

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

    def serve(self, host: str, port: int) -> int:
        """Expose everything on ``host`` and ``port`` (0: any free one) until the process ends; returns the port.

        Prometheus text, or OpenMetrics for those who ask for it.
        """
        front = _access_controlled(self.registry, host)
        listener = listen(host, port, "set another collect.metrics_port or metrics_host")
        port = int(listener.getsockname()[1])
        threading.Thread(
            target=WebServer(front, listener, front.limits).run, name="collect-metrics", daemon=True
        ).start()
        log.info("metrics on http://%s:%s/metrics", host, port)
        return port


def _access_controlled(registry: CollectorRegistry, host: str) -> AccessControl:
    """The metrics behind the rules of their listener: no token; at the loopback under no name but its own."""

    async def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        names = request.query_params.getlist("name[]")
        chosen = registry.restricted_registry(names) if names else registry
        return Response(await run_in_threadpool(encode, chosen), media_type=kind)

    app = Starlette(routes=[Route("/{path:path}", metrics)], middleware=[Middleware(GZipMiddleware)])
    limits = Limits(body_bytes=0, bytes_in_flight=1, connections=100, unknown_peer_connections=50)
    policy = Policy(host, entrances={"/": Entrance(open=True)}, limits=limits, any_name=not is_loopback(host))
    return AccessControl(app, policy)
