"""In a real Chromium: a page that is renewed moves nothing, however long what it says becomes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lake.store import Lake
from tests.dashboard.scene import _append, _partials, write_story
from tests.dashboard.test_browser import _served, browser, opened
from tests.dashboard.troubles import QUEUE, write_troubles
from tests.support.browser import READY
from tests.support.deep import examples
from tests.support.finishing import finish

__all__ = ["browser"]  # the fixture
pytestmark = pytest.mark.browser

#: By selector what is short, and what is as long as a rule, of what a renewal puts there; of a cell its last text.
SAID = {
    ".st-key-picture .sj > p.dim": ("No message waits.", "Now 12,408, at most 12,408. " * 6),
    ".sj-ahead": ("\N{NO-BREAK SPACE}", "→ Drained in 27 min 40 s. " * 6),
    ".sj-facts div:last-child small": ("events cover 100 %", "events cover only 61 %, read 12 s before"),
    ".sj-queues td:nth-child(4)": ("fast", "backlogged"),
    ".sj-queues td:nth-child(5)": ("2 s", "13 min 38 s"),
    ".sj-queues td:nth-child(6)": ("2 s", "13 min 38 s"),
    ".sj-queues td:nth-child(7)": ("9", "12,408"),
    ".sj-queues td:nth-child(8)": ("9/s → 9/s", "19.4/s → 18.4/s"),
    ".sj-queues td:nth-child(9)": ("in 9 s", "not at this rate"),
    ".sj-queues td:nth-child(10)": ("9", "1,395"),
    ".sj-queues td:nth-child(11)": ("9 %", "100 %"),
    ".sj-queues td:nth-child(12)": ("at once", "12 s before"),
}
#: What moves when each of these is first said shortly and then at length, before anything is drawn, as far as Chromium
#: calls it a shift: from 3 pixels on.
MOVED = """
said => {
  const put = place => {
    for (const [which, texts] of Object.entries(said)) {
      const found = document.querySelectorAll(which);
      if (!found.length) throw new Error(`nothing is at ${which}`);
      for (const one of found) one.lastChild.textContent = texts[place];
    }
    // A queue of which there is no picture may come to stand anywhere.
    const pictures = document.querySelectorAll('.sj-queues tr:first-child img');
    for (const one of pictures) one.style.display = place ? '' : 'none';
    return [...document.querySelectorAll('.js-plotly-plot, [class*=st-key-card-], .sj-queues th, .sj-queues td')]
      .map(one => [one.className || one.innerText, one.getBoundingClientRect()]);
  };
  const before = put(0), after = put(1);
  const far = (one, other) => ['x', 'y', 'width'].some(side => Math.abs(one[side] - other[side]) >= 3);
  return before.filter(([, box], place) => far(box, after[place][1])).map(([name]) => name);
}
"""


#: By what it says, where each heading, label and sentence in the window stands, at every frame from when nothing above
#: it is one of Streamlit's skeletons: those are as high as they are, whatever takes their place.
STOOD = """
window.stood = {};
const look = () => {
  const top = one => Math.round(one.getBoundingClientRect().y);
  const skeletons = [...document.querySelectorAll('[data-testid=stMain] [data-testid=stSkeleton]')].map(top);
  for (const one of document.querySelectorAll('h1, .sj h2, [data-testid=stWidgetLabel], .sj-sentence'))
    if (one.innerText && one.checkVisibility() && top(one) < innerHeight && Math.min(...skeletons) > top(one))
      (window.stood[one.innerText] ??= new Set()).add(top(one));
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
#: What moved by more than a note of one line, which nobody knows of beforehand.
MOVED_SINCE = """() => Object.entries(window.stood).map(([name, tops]) => [name, [...tops]])
  .filter(([, tops]) => Math.max(...tops) - Math.min(...tops) >= 32)"""
#: What Chromium calls a shift: how much, and of what.
SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => {
  for (const one of list.getEntries())
    if (!one.hadRecentInput)
      window.shifts.push([one.value, one.sources.map(({node}) => (node?.innerText || '').slice(0, 80))]);
}).observe({type: 'layout-shift'});
"""
#: What is watched for long on call, and in a deep run the others.
PAGES = (
    "",
    "queue?queue=orders",
    "alerts",
    "actions",
    "tenants?queue=orders",
    "consumers",
    "dead-letters",
    "slo",
    "pipeline",
)[: examples(4, 9)]
#: What a page says of what it has not read yet.
LATE = "/being (read|counted)|reading the last hour/"
AS_OF = "() => document.body.innerText.match(/As of [0-9:]+/)?.[0]"
#: How much data comes at once (seconds), and how often: who is loud is quiet then, and loud again.
MORE, TIMES = 10, examples(2, 3)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a lake with queues that need somebody."""
    root, end = tmp_path_factory.mktemp("lake"), datetime.now(UTC)
    write_story(root, end=end, lease=timedelta(hours=1))
    write_troubles(root, end=end)
    return root


@pytest.fixture(scope="module")
def server(lake: Path) -> Iterator[str]:
    """A dashboard over it."""
    yield from _served(lake)


@pytest.fixture(scope="module")
def cold(lake: Path) -> Iterator[str]:
    """Another, which has read nothing of its history yet."""
    yield from _served(lake)


def test_nothing_moves_when_what_is_said_becomes_longer(server: str, browser: Any) -> None:
    page = opened(browser, server)
    page.wait_for_selector(".st-key-picture .js-plotly-plot .main-svg")
    page.wait_for_selector("table img.hour[alt*=p99]")
    page.wait_for_selector("text=/→ Drained/")
    assert page.evaluate(MOVED, SAID) == []


def test_no_page_moves_when_it_is_renewed_with_other_figures(lake: Path, server: str, browser: Any) -> None:
    begun, pages = datetime.now(UTC), {path: opened(browser, f"{server}/{path}") for path in PAGES}
    for page in pages.values():
        page.wait_for_function(f"() => !{LATE}.test(document.body.innerText)")
        page.wait_for_load_state("networkidle")
        page.evaluate(SHIFTS)
    for time in range(TIMES):
        before = {path: page.evaluate(AS_OF) for path, page in pages.items()}
        _go_on(lake, begun + timedelta(seconds=MORE * time), time)
        for path, page in pages.items():
            page.wait_for_function(f"before => ({AS_OF})() !== before", arg=before[path])
    moved = {path: [one for one in page.evaluate("window.shifts") if one[0] >= 0.001] for path, page in pages.items()}
    assert {path: found for path, found in moved.items() if found} == {}


@pytest.mark.parametrize("path", PAGES[: examples(1, 2)])
def test_what_comes_late_has_its_place_before_anything_below_it_is_there(cold: str, browser: Any, path: str) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(60_000)
    page.add_init_script(STOOD)
    page.goto(f"{cold}/{path}")
    page.wait_for_function(f"() => /As of/.test(document.body.innerText) && !{LATE}.test(document.body.innerText)")
    page.wait_for_selector(READY)
    page.wait_for_timeout(1000)  # what came last is drawn
    stood, moved = page.evaluate("Object.keys(window.stood).length"), page.evaluate(MOVED_SINCE)
    page.close()
    assert stood > 1 and moved == []


def _go_on(root: Path, since: datetime, seed: int) -> None:
    """Ten seconds more of each queue: who was quiet is loud, and who was loud is not."""
    there = Lake(root)
    for queue, share in (("orders", 5.0 * seed), ("emails", 9.0), (QUEUE, 30.0 * (seed % 2))):
        _append(there, "partials", _partials(queue, since, MORE, MORE, seed, share=share))
    finish(root)
