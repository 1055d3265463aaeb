"""In a real Chromium: a page that is renewed moves nothing, however long what it says becomes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.scene import write_story
from tests.dashboard.test_browser import _served, browser, opened

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard over a lake with a queue that needs somebody."""
    root: Path = tmp_path_factory.mktemp("lake")
    write_story(root, end=datetime.now(UTC))
    yield from _served(root)


def test_nothing_moves_when_what_is_said_becomes_longer(server: str, browser: Any) -> None:
    page = opened(browser, server)
    page.wait_for_selector(".st-key-picture .js-plotly-plot .main-svg")
    page.wait_for_selector("table img.hour[alt*=p99]")
    page.wait_for_selector("text=/→ Drained/")
    assert page.evaluate(MOVED, SAID) == []
