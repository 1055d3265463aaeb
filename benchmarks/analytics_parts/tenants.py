"""Far more tenants than gold tells apart, an event each: what that costs, and that no event is lost.

All of it is ten million tenants, in about two minutes: analytics.py --only tenants.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.analytics_parts.making import events
from benchmarks.analytics_parts.watching import analysed_once, rss_mb
from benchmarks.figures import Figure
from lake.store import Lake
from spark_analytics.batches.tenants import OTHER
from spark_analytics.settings import AnalyzeSettings

TENANTS, COMMITS, RATE = 10_000_000, 40, 100_000.0


def measure(scale: float) -> Iterator[Figure]:
    """Seconds and memory of ``analyze --once``, the events in gold, and how many of them are counted as ``other``."""
    share = max(1, int(TENANTS * scale) // COMMITS)
    written = share * COMMITS
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder) / "lake")
        lake.create()
        for commit in range(COMMITS):
            lake.append("message_events", _arrivals(commit * share, share))
        memory = [0.0]
        started = time.monotonic()
        analysed_once(lake.root, lambda process: memory.append(rss_mb(process)))
        seconds = time.monotonic() - started
        gold = lake.read("partials", columns=["tenant", "enqueued"])
    told = gold.group_by("tenant").aggregate([("enqueued", "sum")])
    folded = pc.sum(told.filter(pc.equal(told.column("tenant"), OTHER)).column("enqueued_sum")).as_py() or 0
    most = AnalyzeSettings().most_tenants
    yield Figure("tenants_seconds", seconds, "s")
    yield Figure("tenants_rss_mb", max(memory), "MB")
    yield Figure("tenants_events_in_gold", pc.sum(told.column("enqueued_sum")).as_py(), "events", float(written))
    yield Figure("tenants_events_folded", folded, "events", float(max(0, written - most)))
    yield Figure("tenants_told_apart", told.num_rows, "tenants", float(min(written, most + 1)))


def _arrivals(first: int, count: int) -> pa.Table:
    """One arrival of each of ``count`` tenants."""
    number = np.arange(first, first + count)
    at = 1_760_000_000 + number / RATE
    return events(np.zeros(count, np.int64), number, number, at, at, np.zeros(count))
