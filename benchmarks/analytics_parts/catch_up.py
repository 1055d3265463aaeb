"""Ten minutes of its own downtime: seconds from starting the analytics until gold holds all of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.analytics_parts.filling import Filling
from benchmarks.analytics_parts.making import LIFE, lives
from benchmarks.analytics_parts.watching import Gold, analysed_once, analysis
from benchmarks.figures import Figure
from lake.store import Lake

#: Commits as a collector makes them at its ``flush_interval`` of 0.2 s.
RATE, TENANTS, SECONDS, COMMITS_A_SECOND = 10_000, 1_000, 600, 5
#: Seconds whose events are made at once.
STRETCH = 10


def measure(scale: float) -> Iterator[Figure]:
    """``catch_up_seconds``, the start of Java and Spark included, beside the seconds of downtime."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder) / "lake")
        lake.create()
        # The analytics ran before, and follow on from their checkpoint: commit by commit.
        seconds = max(1, round(SECONDS * scale))
        begins = time.time() - seconds
        filling = Filling(lake, lives(STRETCH, begins=begins, rate=RATE, tenants=TENANTS))
        analysed_once(lake.root)
        written = STRETCH * len(LIFE) + _fill(filling, begins, seconds)
        gold = Gold(lake.root)
        gold.start()
        started, deadline = time.time(), time.monotonic() + 600
        with analysis(lake.root):
            while (not gold.seen or gold.seen[-1][0] < written) and time.monotonic() < deadline:
                time.sleep(0.05)
        gold.stop()
    done = next(at for total, at in gold.seen if total >= written)
    yield Figure("catch_up_seconds", done - started, "s", float(seconds))


def _fill(filling: Filling, begins: float, seconds: int) -> int:
    """Commit events of so many seconds; how many."""
    each, written = RATE // COMMITS_A_SECOND, 0
    for at in range(0, seconds, STRETCH):
        messages = RATE * min(STRETCH, seconds - at) // len(LIFE)
        rows = lives(messages, begins=begins + at, rate=RATE, tenants=TENANTS, seed=at)
        for first in range(0, rows.num_rows, each):
            filling.commit(rows.slice(first, each))
        written += rows.num_rows
    filling.done()
    return written
