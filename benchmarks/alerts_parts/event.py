"""An event becomes a page: collector, analysis, rules and delivery, 10,000 events/s beside it; and theirs, in one run.

Our way is the whole one: the event waits for its collector's commit, becomes a micro-batch, a row of gold, an alert of
one of the rules (the shipped ones are all there, too), a webhook. Theirs begins in the same instant at our `/metrics`,
which shows the event's queue at once: Prometheus scrapes and evaluates each second, Alertmanager waits for nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.alerts_parts.beside import alerts, figures, heard, hook, prometheus
from benchmarks.alerts_parts.engine import receiver
from benchmarks.alerts_parts.feed import PROBED
from benchmarks.analytics_parts.live import WARM_UP_SECONDS
from benchmarks.analytics_parts.watching import REPOSITORY, analysis
from benchmarks.figures import Figure
from lake.store import Lake

RATE, TENANTS, PROBES = 10_000, 1_000, 100
PATIENCE_SECONDS = 60.0
_RULES = f"""
groups:
  - name: bench
    rules:
      - alert: Deep
        expr: >-
          SELECT broker, queue, SUM(backlog) AS value FROM tenant_backlog_now
          WHERE queue LIKE '{PROBED}-%' GROUP BY broker, queue HAVING SUM(backlog) > 0
"""


def measure(scale: float) -> Iterator[Figure]:
    """Median and 99th percentile of event → webhook, and the ratio of the medians; ``scale``: of the probes."""
    count = max(3, int(PROBES * scale))
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        root = folder / "lake"
        Lake(root).create()
        ours, theirs, others = (stack.enter_context(receiver()) for _ in range(3))
        stack.enter_context(analysis(root))
        stack.enter_context(alerts(folder, root, _RULES, _settings(ours, others)))
        load = stack.enter_context(_fed(root, count))
        assert load.stdout is not None
        stack.enter_context(prometheus(folder, int(load.stdout.readline()), theirs))
        sent = {queue: float(at) for queue, at in (load.stdout.readline().split() for _ in range(count))}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while missing := [port for port in (ours, theirs) if not sent.keys() <= heard(port).keys()]:
            if time.monotonic() > deadline:
                raise SystemExit(f"{[sorted(sent.keys() - heard(port).keys()) for port in missing]} were not heard of")
            time.sleep(0.1)
        yield from figures("event_to_webhook", sent, ours, theirs)


def _settings(ours: int, others: int) -> dict[str, Any]:
    """What shipped rules find is told, too, to somebody else."""
    routes = [{"matchers": ['alertname="Deep"'], "receivers": ["hook"]}]
    return {"receivers": [hook(ours), hook(others, "others")], "route": {"receivers": ["others"], "routes": routes}}


@contextmanager
def _fed(root: Path, count: int) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(root), str(RATE), str(TENANTS), str(WARM_UP_SECONDS), str(count)]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.alerts_parts.feed", *arguments]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
