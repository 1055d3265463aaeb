"""Ten minutes of its own downtime: seconds from starting the analytics until gold holds all of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.analytics_parts.making import lives
from benchmarks.analytics_parts.watching import Gold, analysis
from benchmarks.figures import Figure
from lake.store import Lake

RATE, TENANTS, SECONDS, COMMITS_A_SECOND = 10_000, 1_000, 600, 5


def measure(scale: float) -> Iterator[Figure]:
    """``catch_up_seconds``, the start of Java and Spark included."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder) / "lake")
        lake.create()
        share = RATE // COMMITS_A_SECOND // 3
        commits = int(SECONDS * scale) * COMMITS_A_SECOND
        begins = time.time() - commits / COMMITS_A_SECOND
        for number in range(commits):
            at = begins + number / COMMITS_A_SECOND
            lake.append("message_events", lives(share, begins=at, rate=RATE, tenants=TENANTS, seed=number))
        gold = Gold(lake.root)
        gold.start()
        started, deadline = time.time(), time.monotonic() + 600
        with analysis(lake.root):
            while (not gold.seen or gold.seen[-1][0] < share * 3 * commits) and time.monotonic() < deadline:
                time.sleep(0.05)
        gold.stop()
    done = next(at for total, at in gold.seen if total >= share * 3 * commits)
    yield Figure("catch_up_seconds", done - started, "s")
