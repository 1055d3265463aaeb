"""HTML of the pages that list: tenants, consumers, dead letters, objectives.

As everywhere, what comes from outside passes :func:`dashboard.pages.markup.escape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from dashboard.pages.markup import NAME, bar, cell, escape, queue_link, tabled
from dashboard.services.keys import QueueKey
from dashboard.services.tenants import COLUMNS, PARTS, TenantRow


def head(names: Sequence[str]) -> str:
    """The headings of a table."""
    return "".join(f'<th scope="col">{escape(name)}</th>' for name in names)


def tag(sign: str, tone: str, word: str) -> str:
    """A state as sign, tone and word."""
    return f'<span class="sj-tag {tone}">{sign} {escape(word)}</span>'


def tenants(rows: Sequence[TenantRow], caption: str, names: Mapping[QueueKey, str] | None) -> str:
    """Tenants as a table, with their queues where ``names`` has them."""
    return tabled(
        head(("Tenant", "", *(["Queue"] if names else []), *COLUMNS)),
        "".join(_tenant(row, names) for row in rows),
        caption,
    )


def _tenant(row: TenantRow, names: Mapping[QueueKey, str] | None) -> str:
    queue = f'<td class="words">{queue_link(names[row.key])}</td>' if names else ""
    width = 0.0 if row.share is None else max(0.0, min(1.0, row.share)) * 100
    first, *rest = row.cells
    cells = f"<td>{escape(first)}{bar(width, loud=row.part == 0)}</td>" + "".join(map(cell, rest))
    part = f'<td class="words">{tag(*PARTS[row.part])}</td>'
    return f'<tr><th scope="row">{escape(row.tenant, NAME)}</th>{part}{queue}{cells}</tr>'


def tenants_link(queue: str, find: str = "") -> str:
    """Where a queue's tenants are."""
    return f"tenants?queue={quote(queue, safe='')}" + (f"&find={quote(find, safe='')}" if find else "")
