"""Event → readable in gold, as partials and as finished state, while a collector writes; memory meanwhile."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.analytics_parts.feed import INTERVAL
from benchmarks.analytics_parts.watching import Finished, Gold, Instant, analysis, fed, rss_mb
from benchmarks.figures import Figure
from lake.store import Lake

#: Before this the analytics start, and Java compiles what it runs.
WARM_UP_SECONDS, SECONDS = 45.0, 60.0


@dataclass(frozen=True, slots=True)
class Lived:
    """Ages, in seconds, of events spread evenly over their time: at which the partials held them, and finished state
    told of them; and the most memory that the analytics took, in MB.
    """

    ages: list[float]
    finished: list[float]
    memory: float


def measure(scale: float) -> Iterator[Figure]:
    """Freshness at 10,000 events/s and at 50,000, 1,000 tenants; at 100,000 tenants, with memory."""
    yield from _figures(_lived(10_000, 1_000, scale))
    yield from _figures(_lived(50_000, 1_000, scale), "_50k")
    many = _lived(10_000, 100_000, scale)
    yield from _figures(many, "_100k_tenants")
    yield Figure("rss_mb_100k_keys", many.memory, "MB")


def _figures(lived: Lived, of: str = "") -> Iterator[Figure]:
    """Beside the freshness of finished state that of the partials, which it follows."""
    partials, finished = (np.quantile(ages, (0.5, 0.99)).tolist() for ages in (lived.ages, lived.finished))
    for name, before, after in zip(("p50", "p99"), partials, finished, strict=True):
        yield Figure(f"freshness_{name}_seconds{of}", before, "s")
        yield Figure(f"freshness_finished_{name}_seconds{of}", after, "s", before)


def _lived(rate: int, tenants: int, scale: float) -> Lived:
    """As :func:`lived`, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        return lived(Path(folder) / "lake", rate, tenants, scale)


def lived(root: Path, rate: int, tenants: int, scale: float) -> Lived:
    """The analytics beside a load of ``rate`` events/s."""
    Lake(root).create()
    gold, state = Gold(root), Finished(root)
    gold.start()
    state.start()
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
        while _lacks(state.seen(gold.seen), written) and time.monotonic() < deadline:
            time.sleep(0.05)
    gold.stop()
    state.stop()
    measured = [one for one in written if one[1] - written[0][1] > WARM_UP_SECONDS]
    return Lived(list(_ages(measured, gold.seen)), list(_ages(measured, state.seen(gold.seen))), memory)


def _lacks(seen: list[Instant], written: list[Instant]) -> bool:
    return not seen or seen[-1][0] < written[-1][0]


def _ages(written: list[Instant], seen: list[Instant]) -> Iterator[float]:
    for number, newest in written:
        shown = next(at for total, at in seen if total >= number)
        # Ten events of the commit, from its oldest to its newest.
        yield from (shown - newest + INTERVAL * place / 10 for place in range(10))
