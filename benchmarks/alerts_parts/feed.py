"""A program: a collector that writes 10,000 events/s and shows `/metrics`, and queues whose first message is a probe.

Called by :mod:`benchmarks.alerts_parts.event` in a process of its own. It prints the port of its `/metrics`, then, as
it happens, "<queue> <unix time>" for each probe: a message that arrives in a queue of its own and is left there. In the
same instant `/metrics` shows that queue's depth, as of a sampler that misses nothing; its event waits for the commit of
its interval, as in any collector.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.analytics_parts.feed import INTERVAL
from benchmarks.analytics_parts.making import LIFE, QUEUES, events
from collectors.board import Board
from collectors.exposition import Exposition
from collectors.samples import Sample
from collectors.selfmetrics import SelfMetrics
from lake.store import Lake

#: Names of queues that probes arrive in.
PROBED = "probe"


class _Probes:
    """Messages that arrive at random instants from ``begin`` (monotonic seconds) on, ``count`` of them."""

    def __init__(self, board: Board, begin: float, count: int) -> None:
        self._board, self._begin, self._count = board, begin, count
        self._lock, self._pending = threading.Lock(), list[tuple[int, float]]()
        self._depths = {f"queue-{number}": 0 for number in range(QUEUES)}
        self._show()
        threading.Thread(target=self._arrive, name="probes", daemon=True).start()

    def take(self) -> list[tuple[int, float]]:
        """The number and the instant (unix seconds) of each that arrived since this was last asked."""
        with self._lock:
            taken, self._pending = self._pending, []
        return taken

    def _arrive(self) -> None:
        chance = random.Random(13)
        time.sleep(max(0.0, self._begin - time.monotonic()))
        for number in range(self._count):
            time.sleep(chance.uniform(0.5, 1.5))
            now = time.time()
            with self._lock:
                self._pending.append((number, now))
            self._depths[f"{PROBED}-{number}"] = 1
            self._show()
            print(f"{PROBED}-{number}", now, flush=True)

    def _show(self) -> None:
        now = time.time_ns() // 1000
        self._board.show("bench", "bench", [Sample(name, now, depth=depth) for name, depth in self._depths.items()])


def main(root: Path, rate: int, tenants: int, warm_up: float, count: int) -> None:
    """Write lives spread over the interval before each commit, and what probes arrived in it, until it is ended."""
    lake, board = Lake(root), Board()
    metrics = SelfMetrics()
    metrics.registry.register(Exposition(board))
    print(metrics.serve("127.0.0.1", 0), flush=True)
    probes = _Probes(board, time.monotonic() + warm_up, count)
    rng = np.random.default_rng(1)
    lives = max(1, int(rate * INTERVAL / len(LIFE)))
    began, commits = time.monotonic(), 0
    while True:
        now = time.time()
        at = np.linspace(now - INTERVAL, now, lives)
        number, tenant = np.arange(lives) + commits * lives, rng.zipf(1.3, lives) % tenants
        message = np.repeat(np.arange(lives), len(LIFE))
        rows = events(
            np.tile(np.arange(len(LIFE)), lives),
            number[message],
            tenant[message],
            at[message] - 0.05,
            at[message],
            np.full(lives * len(LIFE), 0.02),
        )
        lake.append("message_events", pa.concat_tables([rows, *map(_arrival, probes.take())]))
        commits += 1
        time.sleep(max(0.0, began + commits * INTERVAL - time.monotonic()))


def _arrival(probe: tuple[int, float]) -> pa.Table:
    number, at = probe
    one = np.array([number])
    row = events(np.array([0]), one, one, np.array([at]), np.array([at]), np.zeros(1))
    for name, text in (("event_id", f"{PROBED}-{number}"), ("queue", f"{PROBED}-{number}")):
        row = row.set_column(row.schema.get_field_index(name), name, pa.array([text]))
    return row


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
