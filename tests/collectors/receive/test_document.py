"""docs/otlp.md shows the attributes that are declared."""

from __future__ import annotations

from collectors.receive.attributes import ATTRIBUTES, FACTS
from collectors.receive.document import BEGIN, PAGE, renewed


def test_the_page_shows_the_attributes_as_they_are_declared() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert renewed(page) == page, "run python -m collectors.receive.document"
    assert all(f"`{name}`" in page for name in FACTS)


def test_each_attribute_has_one_meaning() -> None:
    names = [name for fact in ATTRIBUTES for name in fact.names]
    assert len(names) == len(set(names))
