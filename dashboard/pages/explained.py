"""HTML of headings that explain themselves: a button each, and what it opens. It needs no script, and no pointer.

What is opened stands once on a page, apart from what is renewed, so that it stays open meanwhile.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from functools import cache
from urllib.parse import quote

from dashboard.services.meanings import MEANINGS, Meaning, meaning


def term(heading: str) -> str:
    """``heading``, as a button where there is more to say of it."""
    found = meaning(heading)
    said = html.escape(heading)
    return said if found is None else f'<button class="sj-term" popovertarget="{_id(found[0])}">{said}</button>'


def heads(names: Iterable[str], kind: str = "") -> str:
    """The headings of a table's columns, of the class ``kind``."""
    which = f' class="{kind}"' if kind else ""
    return "".join(f'<th scope="col"{which}>{term(name)}</th>' for name in names)


@cache
def all_terms() -> str:
    """What the buttons of a page open."""
    return "".join(_explained(name, told) for name, told in MEANINGS.items())


def _explained(name: str, told: Meaning) -> str:
    defined = "".join(
        f"<dt><code>{column.name}</code></dt><dd>{html.escape(column.description.replace('`', ''))}"
        f"{f' ({html.escape(column.unit)})' if column.unit else ''}</dd>"
        for column in told.defined
    )
    link = f"sql?sql={quote(told.sql, safe='')}"
    return (
        f'<div class="sj sj-said" id="{_id(name)}" popover role="note"><p><strong>{html.escape(name)}</strong></p>'
        f'<p>{html.escape(told.words)}</p><dl class="sj-notes">{defined}</dl>'
        f'<p><code>{html.escape(told.sql)}</code></p><p><a href="{link}" target="_self">Ask it</a></p></div>'
    )


def _id(name: str) -> str:
    return f"term-{quote(name, safe='').replace('%', '_')}"
