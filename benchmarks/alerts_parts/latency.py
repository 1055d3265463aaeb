"""A queue's sample becomes a page: by us, and by the real Prometheus and Alertmanager fed from our own `/metrics`.

At one instant a sample is put into the lake and on the board that `/metrics` shows, as a sampler does both. Prometheus
scrapes and evaluates each second, Alertmanager waits for nothing (`group_wait: 0s`); what either pages arrives at a
receiver of its own. Between samples lie random times, so that no rhythm helps anybody.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.alerts_parts.engine import receiver
from benchmarks.figures import Figure
from collectors.board import Board
from collectors.exposition import Exposition
from collectors.samples import Sample, samples_table
from collectors.selfmetrics import SelfMetrics
from lake.store import Lake
from tests.support.alerting import PROGRAM
from tests.support.alertmanager import AlertmanagerServer
from tests.support.prometheus import PrometheusServer

QUEUES, PROBES = 1_000, 30
PATIENCE_SECONDS = 60.0
_RULES = """
groups:
  - name: bench
    rules:
      - alert: Deep
        expr: SELECT broker, queue, depth AS value FROM queue_health_now WHERE depth > 0
"""


def measure(scale: float) -> Iterator[Figure]:
    """Median and 99th percentile of sample → webhook, and the ratio of the medians."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder, ExitStack() as stack:
        ours, theirs = stack.enter_context(receiver()), stack.enter_context(receiver())
        source = _Source(Path(folder) / "lake", int(QUEUES * scale) or 1)
        stack.enter_context(_prometheus(Path(folder), source.port, theirs))
        stack.enter_context(_alerts(Path(folder), source.root, ours))
        sent = source.probe(PROBES, (ours, theirs))
        mine, other = (_latencies(port, sent) for port in (ours, theirs))
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        yield Figure(f"sample_to_webhook_{name}_seconds", _quantile(mine, q), "s", _quantile(other, q))
    yield Figure("sample_to_webhook_ratio", statistics.median(mine) / statistics.median(other), "ours ÷ theirs")


class _Source:
    """Queues of which a sampler tells the lake and `/metrics`."""

    def __init__(self, root: Path, queues: int) -> None:
        self.root, self._lake, self._board = root, Lake(root), Board()
        self._lake.create()
        self._depths = dict.fromkeys((f"queue-{number}" for number in range(queues)), 0)
        metrics = SelfMetrics()
        metrics.registry.register(Exposition(self._board))
        self.port = metrics.serve("127.0.0.1", 0)
        self._show(list(self._depths))

    def probe(self, count: int, receivers: tuple[int, ...]) -> dict[str, float]:
        """Let ``count`` queues grow deep, one after the other; when each did, by its name."""
        chance, sent = random.Random(13), dict[str, float]()
        # Whoever starts must have seen the calm.
        until = time.monotonic() + 15
        while time.monotonic() < until:
            time.sleep(1.0)
            self._show(list(self._depths)[:50])
        for number in range(count):
            queue = f"queue-{number}"
            self._depths[queue] = 5
            sent[queue] = time.time()
            self._show([queue])
            deadline = time.monotonic() + PATIENCE_SECONDS
            while any(queue not in _heard(port) for port in receivers):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{queue}: heard by {[queue in _heard(port) for port in receivers]}")
                time.sleep(0.05)
            time.sleep(chance.uniform(0.5, 2.0))
        return sent

    def _show(self, queues: list[str]) -> None:
        now = time.time_ns() // 1000
        everything = [Sample(name, now, depth=depth, in_flight=0) for name, depth in self._depths.items()]
        self._board.show("bench", "bench", everything)
        changed = [one for one in everything if one.queue in set(queues)]
        self._lake.append("queue_samples", samples_table(changed, "bench", "bench"))


def _heard(port: int) -> dict[str, float]:
    told: dict[str, float] = httpx.get(f"http://127.0.0.1:{port}/").json()["queues"]
    return told


def _latencies(port: int, sent: dict[str, float]) -> list[float]:
    heard = _heard(port)
    return [heard[queue] - at for queue, at in sent.items()]


def _quantile(values: list[float], q: float) -> float:
    return float(np.quantile(values, q))


@contextmanager
def _prometheus(folder: Path, metrics: int, port: int) -> Iterator[None]:
    hook = {"url": f"http://127.0.0.1:{port}/", "send_resolved": False}
    route = {"receiver": "hook", "group_by": ["queue"], "group_wait": "0s", "group_interval": "1s"}
    them = AlertmanagerServer(
        folder / "alertmanager", {"route": route, "receivers": [{"name": "hook", "webhook_configs": [hook]}]}
    )
    them.start()
    rules = folder / "rules.yml"
    rules.write_text(
        json.dumps({"groups": [{"name": "bench", "rules": [{"alert": "Deep", "expr": "sojourn_queue_depth > 0"}]}]})
    )
    prometheus = PrometheusServer(
        folder / "prometheus",
        {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "sojourn", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{them.port}"]}]}]},
        },
    )
    try:
        prometheus.start()
        yield
    finally:
        prometheus.stop()
        them.stop()


@contextmanager
def _alerts(folder: Path, root: Path, port: int) -> Iterator[None]:
    rules = folder / "sojourn.yml"
    rules.write_text(_RULES)
    settings: dict[str, Any] = {
        "rules": [str(rules)],
        "builtin": False,
        "port": 0,
        "receivers": [
            {"name": "hook", "url": f"http://127.0.0.1:{port}/", "allow_private": True, "send_resolved": False}
        ],
    }
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(root), json.dumps(settings)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "alerts.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
