"""In a real Chromium: names of 300 characters without a gap stay within their places, and an address that names a queue
which is not there says so until another is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.scene import TENANTS, write_story
from tests.dashboard.test_browser import _served, browser, opened

__all__ = ["browser"]  # the fixture
#: What of a page's own text is wider than its place.
WIDER = """
() => [...document.querySelectorAll('.sj h1, .sj h2, .sj p, .sj li, .sj dd')]
  .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
  .map(one => one.textContent.slice(0, 80))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard over a lake whose noisy queue and tenants have names without a gap."""
    root: Path = tmp_path_factory.mktemp("long")
    names = {name: f"{name}-{'é' * 290}" for name in TENANTS}
    write_story(root, end=datetime.now(UTC), seconds=60, noisy_from=20, queue="q" * 300, names=names)
    yield from _served(root)


@pytest.mark.parametrize("page", ["", "queue", "alerts", "actions"])
def test_names_without_a_gap_stay_within_their_places(server: str, browser: Any, page: str) -> None:
    shown = opened(browser, f"{server}/{page}")
    shown.wait_for_selector(".sj h2")
    for width in (1280, 390):
        shown.set_viewport_size({"width": width, "height": 900})
        shown.wait_for_function(f"({WIDER})().length === 0")
    shown.context.close()


def test_a_queue_that_is_not_there_is_said_until_another_is_chosen(server: str, browser: Any) -> None:
    page = opened(browser, f"{server}/queue?queue=nosuch")
    said = page.get_by_text("No queue is called 'nosuch' here.")
    said.wait_for()
    age = "[...document.querySelectorAll('.sj p')].map(one => one.innerText).find(text => text.startsWith('As of'))"
    for _ in range(2):  # it is renewed
        before = page.evaluate(age)
        page.wait_for_function(f"before => {{ const now = {age}; return now && now !== before; }}", arg=before)
    assert said.is_visible()
    page.get_by_role("combobox", name="Queue").click()
    page.get_by_role("option").last.click()
    said.wait_for(state="detached")
    page.context.close()
