"""From a commit in gold to a person's screen: a queue's backlog grows by one each second, and a browser shows it.

What an event needs until it is in gold is measured by `make bench-rest` (freshness) and `make bench-analytics`: their
sum is what a person waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import IO

from benchmarks.dashboard_parts.browser import chromium, page_of
from benchmarks.dashboard_parts.lake import PROBE, lake_of, written
from benchmarks.dashboard_parts.server import serving
from benchmarks.figures import Figure
from sojourn.demo.measure import quantile

SECONDS, WARM_UP = 60.0, 10.0
#: Says when each number first stood on the page, in seconds of the wall clock.
_FOLLOW = """
() => {
  window.__numbers = {};
  const look = () => {
    const text = document.querySelector('table:has(caption) tbody tr td')?.innerText ?? '';
    const number = parseInt(text.replace(/[^0-9]/g, ''), 10);
    if (!isNaN(number) && !(number in window.__numbers)) window.__numbers[number] = Date.now() / 1000;
  };
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}
"""


def measure(scale: float) -> Iterator[Figure]:
    """Seconds from the commit to the page of the queue."""
    lake, seconds = lake_of(scale), max(20.0, SECONDS * scale)
    with chromium() as browser, serving(lake) as server, written(lake) as writer:
        assert writer.stdout is not None
        committed: dict[int, float] = {}
        threading.Thread(target=_note, args=(writer.stdout, committed), daemon=True).start()
        with page_of(browser, f"{server.url}/queue?queue={PROBE}") as page:
            page.wait_for_timeout(WARM_UP * 1000)
            page.evaluate(_FOLLOW)
            since = time.time()
            page.wait_for_timeout(seconds * 1000)
            shown = {int(number): at for number, at in page.evaluate("window.__numbers").items()}
    # Of a number that was never shown, the next one's showing counts: it had overtaken it.
    waits = [
        min(at for number, at in shown.items() if number >= one) - when
        for one, when in committed.items()
        if when >= since and any(number >= one for number in shown)
    ]
    yield Figure("commit_to_screen_p50_seconds", quantile(waits, 0.5) or 0.0, "s")
    yield Figure("commit_to_screen_p95_seconds", quantile(waits, 0.95) or 0.0, "s")


def _note(lines: IO[str], committed: dict[int, float]) -> None:
    for line in lines:
        number, at = line.split()
        committed[int(number)] = float(at)
