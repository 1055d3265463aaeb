"""A real Chromium: pages of the dashboard opened in it, and pictures that are looked at before they are kept."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.waiting import PATIENCE

READY = "[data-testid=stApp][data-test-script-state=notRunning]"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HERE = ("http://127.0.0.1", "data:", "blob:")
LOUD = ("error", "warning")
#: Where the pictures of docs/images go, if they are to be taken anew (`make images`); others are kept nowhere.
SHOTS = os.environ.get("SOJOURN_SCREENSHOTS")
DOCUMENTED = frozenset(("overview", "overview-dark", "overview-phone", "queue", "dead-letters", "lab")) | {
    f"story-{step}" for step in ("alert", "approve", "approved")
}
#: A picture with less beside its ground is empty.
LEAST_DRAWN = 0.01
#: What is on the page and lies upon one another although neither holds the other, by more than a hair's breadth.
_OVERLAPS = """() => {
  const shown = [...document.querySelectorAll(
    '[data-testid=stMain] .sj, [data-testid=stMain] .js-plotly-plot, [data-testid=stMain] [data-testid=stButton], ' +
    '[data-testid=stMain] [data-testid=stSelectbox], [data-testid=stMain] [data-testid=stDownloadButton]')]
    .filter(one => one.checkVisibility())  // what a closed fold holds has a place, but is not drawn
    .map(one => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width > 2 && box.height > 2);
  const found = [];
  shown.forEach(([a, one], place) => shown.slice(place + 1).forEach(([b, two]) => {
    if (a.contains(b) || b.contains(a)) return;
    const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
    const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
    if (wide > 4 && high > 4) found.push([a.innerText.slice(0, 60), b.innerText.slice(0, 60), wide, high]);
  }));
  return found;
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium; without one the test is skipped here, and fails in CI."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), "")
    if not path:
        missing = "no Chromium on this machine: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(
    browser: Any, url: str, *, scheme: str = "light", width: int = 1440, height: int = 1000, zone: str | None = None
) -> Any:
    """A page at ``url``, once it is there; ``outside`` and ``wrong`` gather what it asks of others and complains of."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id=zone)
    page.set_default_timeout(60_000)  # a busy machine is slow, not wrong
    page.outside = []
    page.wrong = []
    page.on("console", lambda said: said.type in LOUD and page.wrong.append(f"{said.text} {said.location}"))
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("request", lambda request: request.url.startswith(HERE) or page.outside.append(request.url))
    page.goto(url)
    page.wait_for_selector(READY)
    page.wait_for_selector("h1")
    return page


def shoot(page: Any, name: str, tmp_path: Path) -> None:
    """Keep a picture of ``page``: it shows something, no error, and nothing upon anything else."""
    assert page.locator("[data-testid=stException], [data-testid=stAlertContentError]").count() == 0
    settled(page)
    folder = Path(SHOTS) if SHOTS and name in DOCUMENTED else tmp_path
    taken = page.screenshot()
    assert drawn(taken) >= LEAST_DRAWN, f"{name} is empty"
    (folder / f"{name}.png").write_bytes(taken)


def settled(page: Any) -> None:
    """Wait until all is there and nothing lies upon anything else: what has just been drawn anew still moves."""
    page.wait_for_function("!document.querySelector('[data-testid=stMain] [data-testid=stSkeleton]')")
    deadline = time.monotonic() + 10 * PATIENCE
    while (found := page.evaluate(_OVERLAPS)) and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    assert not found, found


def drawn(picture: bytes) -> float:
    """The part of a PNG that has another colour than most of it."""
    with Image.open(io.BytesIO(picture)) as image:
        small = image.convert("RGB").resize((image.width // 2, image.height // 2), Image.Resampling.NEAREST)
    colors = small.getcolors(small.width * small.height) or []
    return 1 - max(count for count, _ in colors) / (small.width * small.height)
