"""The views' reference page is the one that their declarations generate."""

from __future__ import annotations

from pathlib import Path

from lake.views.document import markdown


def test_the_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "views.md"
    assert page.read_text(encoding="utf-8") == markdown(), "run `make docs`"
