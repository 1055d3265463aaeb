"""From an address to a page: the overview of 100,000 keys, of a server that nobody has asked, in a fresh browser."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.dashboard_parts.browser import chromium, page_of, seen
from benchmarks.dashboard_parts.lake import lake_of
from benchmarks.dashboard_parts.server import Server, empty, serving
from benchmarks.figures import Figure

TIMES = 5
PAGES = ("queue?queue=queue-07", "tenants", "consumers", "dead-letters", "slo", "alerts", "actions", "sql", "pipeline")


def measure(scale: float) -> Iterator[Figure]:
    """Medians, in seconds: until the heading says what is wrong, and until all is drawn; cold, and on a warm server."""
    lake, times = lake_of(scale), max(1, round(TIMES * scale))
    with chromium() as browser:
        ours, theirs = _cold(browser, lambda: serving(lake), times), _cold(browser, empty, times)
        yield Figure("first_paint_seconds", ours[0], "s", theirs[0])
        yield Figure("whole_page_seconds", ours[1], "s", theirs[1])
        with serving(lake) as server:
            _painted(browser, server.url)
            warm = [_painted(browser, server.url) for _ in range(times)]
            yield Figure("first_paint_warm_seconds", statistics.median(one for one, _ in warm), "s", theirs[0])
            for page in PAGES:
                heading, whole = _painted(browser, f"{server.url}/{page}")
                yield Figure(f"first_paint_{page.partition('?')[0]}_seconds", heading, "s", whole)


def _cold(browser: Any, start: Callable[[], AbstractContextManager[Server]], times: int) -> tuple[float, float]:
    found = []
    for _ in range(times):
        with start() as server:
            found.append(_painted(browser, server.url))
    return statistics.median(one for one, _ in found), statistics.median(one for _, one in found)


def _painted(browser: Any, url: str) -> tuple[float, float]:
    with page_of(browser, url) as page:
        told = seen(page)
        return told["heading"] / 1000, told["whole"] / 1000
