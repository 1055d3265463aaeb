"""A queue's sample becomes a page: by us, and by the real Prometheus and Alertmanager fed from our own `/metrics`.

At one instant a sample is put into the lake and on the board that `/metrics` shows, as a sampler does both. Prometheus
scrapes and evaluates each second, Alertmanager waits for nothing (`group_wait: 0s`); what either pages arrives at a
receiver of its own. Between samples lie random times, so that no rhythm helps anybody.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.alerts_parts.beside import alerts, figures, heard, hook, prometheus
from benchmarks.alerts_parts.engine import receiver
from benchmarks.figures import Figure
from collectors.board import Board
from collectors.exposition import Exposition
from collectors.samples import Sample, samples_table
from collectors.selfmetrics import SelfMetrics
from lake.store import Lake

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
        stack.enter_context(prometheus(Path(folder), source.port, theirs))
        settings = {"builtin": False, "receivers": [hook(ours)]}
        stack.enter_context(alerts(Path(folder), source.root, _RULES, settings))
        sent = source.probe(PROBES, (ours, theirs))
        yield from figures("sample_to_webhook", sent, ours, theirs)


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
            while any(queue not in heard(port) for port in receivers):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{queue}: heard by {[queue in heard(port) for port in receivers]}")
                time.sleep(0.05)
            time.sleep(chance.uniform(0.5, 2.0))
        return sent

    def _show(self, queues: list[str]) -> None:
        now = time.time_ns() // 1000
        everything = [Sample(name, now, depth=depth, in_flight=0) for name, depth in self._depths.items()]
        self._board.show("bench", "bench", everything)
        changed = [one for one in everything if one.queue in set(queues)]
        self._lake.append("queue_samples", samples_table(changed, "bench", "bench"))
