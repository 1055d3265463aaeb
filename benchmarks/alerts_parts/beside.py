"""The alert process and, beside it, the real Prometheus and Alertmanager, each with a receiver of its own."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.figures import Figure
from tests.support.alerting import PROGRAM
from tests.support.alertmanager import AlertmanagerServer
from tests.support.prometheus import PrometheusServer


def heard(port: int) -> dict[str, float]:
    """When (unix seconds) the receiver at ``port`` first heard of which queue."""
    told: dict[str, float] = httpx.get(f"http://127.0.0.1:{port}/").json()["queues"]
    return told


def figures(what: str, sent: Mapping[str, float], ours: int, theirs: int) -> Iterator[Figure]:
    """Median and 99th percentile of what passed from when each queue was ``sent`` until our receiver and theirs heard
    of it, and the ratio of the medians."""
    mine, other = ([heard(port)[queue] - at for queue, at in sent.items()] for port in (ours, theirs))
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        yield Figure(f"{what}_{name}_seconds", float(np.quantile(mine, q)), "s", float(np.quantile(other, q)))
    yield Figure(f"{what}_ratio", statistics.median(mine) / statistics.median(other), "ours ÷ theirs")


@contextmanager
def prometheus(folder: Path, metrics: int, port: int) -> Iterator[None]:
    """Both, fed from the exposition at port ``metrics`` each second, telling the receiver at ``port`` at once."""
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
def alerts(folder: Path, root: Path, rules: str, settings: Mapping[str, Any]) -> Iterator[int]:
    """The alert process over the lake at ``root`` with ``rules``, a file's text; its process id. Log: ``folder``."""
    file = folder / "sojourn.yml"
    file.write_text(rules)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        PROGRAM,
        str(root),
        json.dumps({**settings, "rules": [str(file)], "port": 0}),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "alerts.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def hook(port: int, name: str = "hook") -> dict[str, Any]:
    """Settings of the receiver at ``port`` of this machine, which is told of what fires."""
    return {"name": name, "url": f"http://127.0.0.1:{port}/", "allow_private": True, "send_resolved": False}
