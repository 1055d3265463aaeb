"""One open page while the lake is written: how long a renewal takes, what it costs, whether anything moves.

What it costs is told over minutes, however small the scale: history is read in rounds of some seconds of processor time
with minutes between them, which a shorter look would have or miss by chance.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.dashboard_parts.browser import chromium, page_of, seen
from benchmarks.dashboard_parts.lake import lake_of, written
from benchmarks.dashboard_parts.server import empty, serving
from benchmarks.figures import Figure
from dashboard.settings import DashboardSettings
from sojourn.demo.measure import quantile

SECONDS, WARM_UP = 60.0, 15.0
#: Seconds between two renewals.
EVERY = DashboardSettings().refresh_seconds
#: For so long a page is looked at while the lake is written.
WRITTEN_SECONDS = 180.0


def measure(scale: float) -> Iterator[Figure]:
    """Renewals in seconds, from their request to the end of drawing; cores of server and worker; layout shifts."""
    lake, seconds = lake_of(scale), max(20.0, SECONDS * scale)
    with chromium() as browser:
        with serving(lake) as server, page_of(browser, server.url) as page:
            yield from _watched("rest_", server.processor, page, seconds)
            with written(lake):
                yield from _watched("", server.processor, page, max(WRITTEN_SECONDS, seconds))
        with empty() as server, page_of(browser, server.url):
            yield Figure("open_page_cores_of_an_empty_page", _cores(server.processor, seconds / 3), "cores")


def _watched(which: str, processor: Callable[[], float], page: Any, seconds: float) -> Iterator[Figure]:
    page.wait_for_timeout(WARM_UP * 1000)
    since = page.evaluate("performance.now()")
    spent, begun = processor(), time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    cores = (processor() - spent) / (time.monotonic() - begun)
    told = seen(page)
    took = [length / 1000 for at, length in told["renewals"] if at >= since]
    yield Figure(f"{which}refresh_p50_seconds", quantile(took, 0.5) or 0.0, "s")
    yield Figure(f"{which}refresh_p95_seconds", quantile(took, 0.95) or 0.0, "s")
    yield Figure(f"{which}refreshes", len(took), "renewals", seconds / EVERY)
    yield Figure(f"{which}open_page_cores", cores, "cores")
    shifts = [(at - since, value, moved) for at, value, moved in told["shifts"] if at >= since]
    for at, value, moved in shifts:
        print(f"{which}layout_shift of {value:.4f} after {at / 1000:.1f} s:", *moved, sep="\n  ", file=sys.stderr)
    yield Figure(f"{which}layout_shift", sum(value for _, value, _ in shifts), "score")


def _cores(processor: Callable[[], float], seconds: float) -> float:
    spent, begun = processor(), time.monotonic()
    time.sleep(seconds)
    return (processor() - spent) / (time.monotonic() - begun)
