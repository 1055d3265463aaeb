"""The reference page of the views, generated from their declared columns: ``python -m lake.views.document``."""

from __future__ import annotations

from lake.views.catalogue import VIEWS
from lake.views.model import View

_INTRO = """# Views

The names and columns here are public: dashboards, alert rules and ad-hoc SQL use them. This page is generated
(`make docs`); the declarations stand in `lake/views/columns.py`, the formulas in `lake/views/sql/`.

The first four hold history, one row for each key and second in which something changed. Each has a twin `…_now` with
one row for each key, worked out at the broker's data time: the newest event that the lake holds for it. Rates are
taken over a window of whole seconds (60 unless the lake's `definitions.json` says otherwise) that ends with the row's
second. A null is unknown, never zero.

Quantiles of several rows together come from their histograms:
`SELECT histogram_quantile(histogram_merge(histogram), 0.99) FROM attempt_age WHERE kind = 'first_attempt'`.
"""


def markdown() -> str:
    """The whole page."""
    public = [view for view in VIEWS.values() if view.public and not view.name.endswith("_now")]
    return "\n".join([_INTRO, *(_section(view) for view in public)])


def _section(view: View) -> str:
    twin = f"{view.name}_now"
    title = f"## `{view.name}`" + (f" and `{twin}`" if twin in VIEWS else "")
    lines = [title, "", "| column | type | unit | meaning |", "|---|---|---|---|"]
    lines += [f"| {c.name} | {_cell(c.type)} | {c.unit} | {_cell(c.description)} |" for c in view.columns]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")
