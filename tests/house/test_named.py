"""Pages that say what is shown by which test name tests that there are."""

from __future__ import annotations

import re

import pytest

from tests.house.test_security import ROOT, functions

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PAGES = ("backpressure-faults.md", "backpressure.md")


def rows(page: str) -> list[str]:
    """The lines of a page's tables that name a test."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith("| ") and NAMED.search(line)]


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = [one for row in rows(page) for one in NAMED.findall(row)]
    assert len(named) > 20
    assert [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)] == []


def test_every_fault_of_acting_names_its_test() -> None:
    text = (ROOT / "docs" / "backpressure-faults.md").read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    assert len(sections) == 10
    for section in sections:
        told = [line for line in section.splitlines() if line.startswith("| ")][1:]  # below the table's head
        assert told and all(NAMED.search(line) for line in told), section.splitlines()[0]


def test_every_law_has_a_line_that_says_where_it_is_used() -> None:
    """One for each file of laws; what is not a law is named here."""
    frame = {"__init__", "bounds", "document", "law", "limits", "max_min", "observation", "registry", "signalled"}
    files = {path.stem for path in (ROOT / "alerts" / "laws").glob("*.py")} - frame
    told = {row.split("`")[1] for row in rows("backpressure.md")}
    assert told == files | {"shuffle_sharding", "fair"}
