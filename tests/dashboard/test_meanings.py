"""Headings that explain themselves: in plain words, by the views' definitions, and by SQL that anybody can run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.pages import explained
from dashboard.services.meanings import MEANINGS, meaning
from lake.reader import Reader
from tests.dashboard.test_every_page import PAGES
from tests.dashboard.test_pages import AGES, opened
from tests.support.deep import examples


def test_each_statement_runs_and_has_the_columns_that_are_explained(troubled: Path) -> None:
    with Reader(troubled) as reader:
        for name, told in MEANINGS.items():
            answer = reader.query(told.sql)
            assert set(told.columns) <= set(answer.column_names), name
            assert {one.name for one in told.defined} == set(told.columns) or told.view == "partials", name
            assert told.words.endswith("."), name


def test_a_heading_is_known_by_its_beginning_and_the_longest_counts() -> None:
    names = {heading: found and found[0] for heading in HEADINGS if (found := meaning(heading)) or True}
    assert names == HEADINGS


HEADINGS = {
    "Oldest, quiet": "Oldest, quiet",
    "Oldest, quiet tenants": "Oldest, quiet",
    "Oldest, all": "Oldest",
    "Burn, 1 h": "Burn",
    "In the system, p50 · p99": "In the system",
    "Share of backlog": "Share of backlog",
    "Worksheet": None,
    "Queue": None,
    "": None,
}


@pytest.mark.parametrize("page", PAGES[: examples(3, len(PAGES))])
def test_what_a_heading_opens_is_on_its_page(troubled: Path, show: Callable[..., None], page: str) -> None:
    show(troubled, stale_after_seconds=AGES)
    bodies = " ".join(element.proto.body for element in opened(page).get("html"))
    buttons, there = re.findall(r'popovertarget="([^"]+)"', bodies), re.findall(r'id="([^"]+)" popover', bodies)
    assert set(buttons) <= set(there) and len(there) == len(set(there)) == len(MEANINGS)
    assert bool(buttons) == (page not in ("alerts", "actions", "pipeline"))


def test_nothing_in_a_heading_is_markup() -> None:
    assert explained.term("<b>") == "&lt;b&gt;"
    assert "Broker&#x27;s own count</button>" in explained.term("Broker's own count")
