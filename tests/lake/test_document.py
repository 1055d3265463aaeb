"""The reference pages are the ones that the declarations generate."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake import metrics_page
from lake.views import document

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("name", "expected"), [("views", document.markdown()), ("metrics", metrics_page.markdown())])
def test_the_page_is_current(name: str, expected: str) -> None:
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == expected, "run `make docs`"
