"""Twenty viewers of one process while the lake is written: nineteen at the wire, and one in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.dashboard_parts.browser import chromium, page_of, seen
from benchmarks.dashboard_parts.lake import lake_of, written
from benchmarks.dashboard_parts.server import child_environment, serving
from benchmarks.figures import Figure
from dashboard.settings import DashboardSettings
from sojourn.demo.measure import quantile

VIEWERS, SECONDS, WARM_UP = 20, 60.0, 10.0


def measure(scale: float) -> Iterator[Figure]:
    """Seconds of a renewal, of all viewers and of the one in the browser; cores of the process with its worker."""
    lake, seconds = lake_of(scale), max(20.0, SECONDS * scale)
    with chromium() as browser, serving(lake) as server, written(lake):
        alone = quantile(looked(server.url, 1, seconds / 3)["took"], 0.95)
        with page_of(browser, server.url) as page:
            page.wait_for_timeout(WARM_UP * 1000)
            since, spent, begun = page.evaluate("performance.now()"), server.processor(), time.monotonic()
            told = looked(server.url, VIEWERS - 1, seconds)
            cores = (server.processor() - spent) / (time.monotonic() - begun)
            drawn = [length / 1000 for at, length in seen(page)["renewals"] if at >= since]
        took = told["took"]
        yield Figure("viewers_20_refresh_p95_seconds", quantile(took, 0.95) or 0.0, "s", alone)
        yield Figure("viewers_20_refresh_p50_seconds", quantile(took, 0.5) or 0.0, "s")
        yield Figure("viewers_20_browser_p95_seconds", quantile(drawn, 0.95) or 0.0, "s")
        yield Figure(
            "viewers_20_refreshes", len(took), "renewals", (VIEWERS - 1) * seconds / DashboardSettings().refresh_seconds
        )
        yield Figure("viewers_20_cores", cores, "cores")
        yield Figure("refresh_kilobytes", told["bytes"] / max(1, len(took)) / 1000, "kB")


def looked(url: str, viewers: int, seconds: float, *told: str) -> dict[str, Sequence[float]]:
    """What so many viewers saw."""
    command = [sys.executable, "-m", "benchmarks.dashboard_parts.viewer", url, str(viewers), str(seconds), *told]
    done = subprocess.run(command, env=child_environment(), check=True, capture_output=True, text=True)
    found: dict[str, Sequence[float]] = json.loads(done.stdout)
    return found
