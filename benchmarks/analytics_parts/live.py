"""Event → readable in gold while a collector writes, and the memory that the analytics take."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.analytics_parts.feed import INTERVAL
from benchmarks.analytics_parts.watching import Gold, Instant, analysis, fed, rss_mb
from benchmarks.figures import Figure
from lake.store import Lake

#: Before this the analytics start, and Java compiles what it runs.
WARM_UP_SECONDS, SECONDS = 45.0, 60.0


def measure(scale: float) -> Iterator[Figure]:
    """Freshness at 10,000 events/s and at 50,000, 1,000 tenants; memory at 100,000 tenants."""
    ages, _ = _lived(10_000, 1_000, scale)
    yield Figure("freshness_p50_seconds", statistics.median(ages), "s")
    yield Figure("freshness_p99_seconds", float(np.quantile(ages, 0.99)), "s")
    ages, _ = _lived(50_000, 1_000, scale)
    yield Figure("freshness_p50_seconds_50k", statistics.median(ages), "s")
    yield Figure("freshness_p99_seconds_50k", float(np.quantile(ages, 0.99)), "s")
    ages, memory = _lived(10_000, 100_000, scale)
    yield Figure("freshness_p99_seconds_100k_tenants", float(np.quantile(ages, 0.99)), "s")
    yield Figure("rss_mb_100k_keys", memory, "MB")


def _lived(rate: int, tenants: int, scale: float) -> tuple[list[float], float]:
    """As :func:`lived`, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        return lived(Path(folder) / "lake", rate, tenants, scale)


def lived(root: Path, rate: int, tenants: int, scale: float) -> tuple[list[float], float]:
    """Ages, of events spread evenly over their time, at which gold showed them; and the most memory seen."""
    Lake(root).create()
    gold = Gold(root)
    gold.start()
    memory = 0.0
    with analysis(root) as process:
        load = fed(root, rate, tenants, WARM_UP_SECONDS + SECONDS * scale)
        written: list[Instant] = []
        assert load.stdout is not None
        for line in load.stdout:
            number, at = line.split()
            written.append((int(number), float(at)))
            memory = max(memory, rss_mb(process.pid))
        deadline = time.monotonic() + 60
        while (not gold.seen or gold.seen[-1][0] < written[-1][0]) and time.monotonic() < deadline:
            time.sleep(0.05)
    gold.stop()
    return list(_ages([one for one in written if one[1] - written[0][1] > WARM_UP_SECONDS], gold.seen)), memory


def _ages(written: list[Instant], seen: list[Instant]) -> Iterator[float]:
    for number, newest in written:
        shown = next(at for total, at in seen if total >= number)
        # Ten events of the commit, from its oldest to its newest.
        yield from (shown - newest + INTERVAL * place / 10 for place in range(10))
