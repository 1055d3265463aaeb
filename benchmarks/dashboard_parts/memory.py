"""Eight hours of an open page, without waiting for them: as many renewals as it asks for, one after another.

The lake has a quarter of an hour of seconds when it begins, as one that has run for a while. It is written meanwhile,
and maintained as the analysis does it, so that what is kept under its versions must be let go of. Simulated is the
number of renewals (8 h ÷ the time between two), not the hours: what would grow by the clock alone would not be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.dashboard_parts.browser import chromium, page_of, seen
from benchmarks.dashboard_parts.lake import FULL_SECONDS, lake_of, written
from benchmarks.dashboard_parts.server import serving
from benchmarks.dashboard_parts.viewers import looked
from benchmarks.figures import Figure
from benchmarks.processor import memory_mb
from dashboard.settings import DashboardSettings

HOURS, EVERY = 8, DashboardSettings().refresh_seconds
VIEWERS, ROUNDS = 4, 8
#: The browser renews on its own, as often as settings allow.
BROWSER_SECONDS, BROWSER_EVERY = 120.0, 0.5


def measure(scale: float) -> Iterator[Figure]:
    """Resident megabytes after each hour, beside those after the first, of the server alone and with what reads for it;
    the browser's.

    The process that reads history takes what its bound lets it take, and ends when nobody asks it for ten minutes.
    """
    lake, renewals = lake_of(scale, FULL_SECONDS), round(HOURS * 3600 / EVERY * scale)
    with serving(lake) as server, written(lake):
        held, alone = [], []
        for hour in range(1, ROUNDS + 1):
            looked(server.url, VIEWERS, 0.0, "--renewals", str(max(1, renewals // ROUNDS // VIEWERS)))
            held.append(server.memory())
            alone.append(memory_mb(server.process.pid))
            yield Figure(f"memory_mb_after_hour_{hour}", held[-1], "MB", held[0])
            yield Figure(f"server_memory_mb_after_hour_{hour}", alone[-1], "MB", alone[0])
        yield Figure("memory_growth_mb_an_hour", (held[-1] - held[1]) / (ROUNDS - 2), "MB")
        yield Figure("server_memory_growth_mb_an_hour", (alone[-1] - alone[1]) / (ROUNDS - 2), "MB")
    with (
        chromium() as browser,
        serving(lake, refresh_seconds=BROWSER_EVERY) as server,
        written(lake),
        page_of(browser, server.url) as page,
    ):
        heap = []
        session = page.context.new_cdp_session(page)
        for _ in range(4):
            page.wait_for_timeout(BROWSER_SECONDS * scale / 4 * 1000)
            session.send("HeapProfiler.collectGarbage")
            heap.append(session.send("Runtime.getHeapUsage")["usedSize"] / 1e6)
        for quarter, megabytes in enumerate(heap, 1):
            yield Figure(f"browser_heap_mb_after_quarter_{quarter}", megabytes, "MB", heap[0])
        yield Figure("browser_renewals", len(seen(page)["renewals"]), "renewals")
