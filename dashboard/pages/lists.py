"""HTML of the pages that list: tenants, consumers, dead letters, objectives.

As everywhere, what comes from outside passes :func:`dashboard.pages.markup.escape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from dashboard.pages import explained, spark
from dashboard.pages.markup import NAME, bar, cell, escape, loudness, queue_link, tabled
from dashboard.services import consumers as working
from dashboard.services import dead_letters, lab
from dashboard.services import groups as grouping
from dashboard.services.consumers import ConsumerRow
from dashboard.services.dead_letters import DeadQueue
from dashboard.services.groups import GroupRow
from dashboard.services.keys import QueueKey
from dashboard.services.lab import Way
from dashboard.services.series import Curve
from dashboard.services.slo import Burn
from dashboard.services.tenants import COLUMNS, PARTS, TenantRow
from dashboard.services.trends import level_words


def head(names: Sequence[str], *words: str) -> str:
    """The headings of a table's columns: of figures at the right, of states, queues and ``words`` at the left."""
    left = {"State", "Queue", *words}
    return "".join(explained.heads((name,), "words" if name in left else "") for name in names)


def tag(sign: str, tone: str, word: str) -> str:
    """A state as sign, tone and word."""
    return f'<span class="sj-tag {tone}">{sign} {escape(word)}</span>'


def tenants(rows: Sequence[TenantRow], names: Mapping[QueueKey, str] | None) -> str:
    """Tenants as a table, with their queues where ``names`` has them."""
    return tabled(
        head(("Tenant", "State", *(["Queue"] if names else []), *COLUMNS)), "".join(_tenant(row, names) for row in rows)
    )


def _tenant(row: TenantRow, names: Mapping[QueueKey, str] | None) -> str:
    queue = f'<td class="words">{queue_link(names[row.key])}</td>' if names else ""
    width = 0.0 if row.share is None else max(0.0, min(1.0, row.share)) * 100
    first, *rest = row.cells
    cells = f"<td>{escape(first)}{bar(width, loud=row.part == 0)}</td>" + "".join(map(cell, rest))
    part = f'<td class="words">{tag(*PARTS[row.part])}</td>'
    return f'<tr><th scope="row">{escape(row.tenant, NAME)}</th>{part}{queue}{cells}</tr>'


def groups(rows: Sequence[GroupRow], names: Mapping[QueueKey, str] | None) -> str:
    """Groups of tenants as a table, with their queues where ``names`` has them."""
    columns = ("Group", "State", *(["Queue"] if names else []), *grouping.COLUMNS)
    return tabled(head(columns, grouping.COLUMNS[-1]), "".join(_group(row, names) for row in rows))


def _group(row: GroupRow, names: Mapping[QueueKey, str] | None) -> str:
    queue = f'<td class="words">{queue_link(names.get(row.key, row.key.full))}</td>' if names else ""
    sign = tag("◆", "", "declared") if row.declared else tag("◆", "watch", "began together")
    noisy = f" {tag('▲', 'act', f'{row.noisy:,} noisy')}" if row.noisy else ""
    name = escape(row.name, NAME)
    if row.find:
        name = f'<a href="tenants?find={quote(row.find, safe="")}" target="_self">{name}</a>'
    tenants_, backlog, share, *rest, last = row.cells
    width = 0.0 if row.share is None else max(0.0, min(1.0, row.share)) * 100
    cells = f"{cell(tenants_)}{cell(backlog)}<td>{escape(share)}{bar(width, loud=row.noisy > 0)}</td>"
    how = f'<br><span class="dim">{escape(row.how)}</span>'
    return (
        f'<tr><th scope="row">{name}</th><td class="words">{sign}{noisy}{how}</td>{queue}{cells}'
        f'{"".join(map(cell, rest))}<td class="words">{escape(last, 2 * NAME)}</td></tr>'
    )


def consumers(
    rows: Sequence[ConsumerRow],
    names: Mapping[QueueKey, str],
    hours: Mapping[QueueKey, Curve],
    *,
    judged: bool,
) -> str:
    """Consumers as a table, each with what rules say of it and its last hour; ``judged``: whether rules ran at all."""
    columns = ("Queue", "State", working.COLUMNS[0], "Last hour", *working.COLUMNS[1:])
    return tabled(head(columns), "".join(_consumer(row, names, hours.get(row.key), judged) for row in rows))


def _consumer(row: ConsumerRow, names: Mapping[QueueKey, str], hour: Curve | None, judged: bool) -> str:
    if row.judged:
        verdict = " ".join(tag("▲", loudness(card) or "watch", card.title) for card in row.judged)
    else:
        verdict = tag("✓", "fine", "no fault found") if judged else tag("–", "", "not judged")
    count_of, work, used, *rest = row.cells
    picture = spark.line(hour, level_words(hour, "at work")) if hour is not None else ""
    leak = f"<br><span class=dim>{escape(row.leaked)}</span>" if row.leaked else ""
    width = 0.0 if row.used is None else min(1.0, row.used) * 100
    shown = bar(width, loud=width >= 80) if row.used is not None else ""
    unknown = "" if row.used is not None else ' class="unknown"'
    return (
        f'<tr><th scope="row">{queue_link(names[row.key])}</th><td class="words">{verdict}</td>{cell(count_of)}'
        f"<td>{picture}</td><td>{escape(work)}{leak}</td><td{unknown}>{escape(used)}{shown}</td>"
        f"{''.join(map(cell, rest))}</tr>"
    )


def dead_queues(rows: Sequence[DeadQueue], names: Mapping[QueueKey, str]) -> str:
    """Queues that dead-letter as a table, each with whether it goes on."""
    return tabled(head(("Queue", "State", *dead_letters.COLUMNS)), "".join(_dead(row, names) for row in rows))


def _dead(row: DeadQueue, names: Mapping[QueueKey, str]) -> str:
    state = tag("◆", "watch", "goes on") if row.going_on else tag("–", "", "none lately")
    name = queue_link(names[row.key])
    return f'<tr><th scope="row">{name}</th><td class="words">{state}</td>{"".join(map(cell, row.cells))}</tr>'


_BURNS = {"critical": ("▲", "act", "burns fast"), "warning": ("◆", "watch", "burns slowly"), "info": ("◆", "", "burns")}


def burns(rows: Sequence[Burn], columns: Sequence[str], names: Mapping[QueueKey, str]) -> str:
    """Whom an objective is for as a table, each with what is left of the budget."""
    per_tenant = any(row.tenant is not None for row in rows)
    first = ("Tenant", "Queue", "State") if per_tenant else ("Queue", "State")
    return tabled(head((*first, *columns)), "".join(_burn(row, names) for row in rows))


def _burn(row: Burn, names: Mapping[QueueKey, str]) -> str:
    state = tag(*_BURNS[row.severity]) if row.severity else tag("✓", "fine", "keeps it")
    if row.severity is None and row.left is not None and row.left <= 0:
        state = tag("–", "", "spent")
    queue = queue_link(names[row.key]) if row.key in names else escape(row.key.full, NAME)
    who = f'<th scope="row">{queue}</th>'
    if row.tenant is not None:
        who = f'<th scope="row">{escape(row.tenant, NAME)}</th><td class="words">{queue}</td>'
    left = 0.0 if row.left is None else max(0.0, min(1.0, row.left)) * 100
    first, *rest = row.cells
    budget = f"<td>{escape(first)}{bar(left, loud=left < 10)}</td>"
    return f'<tr>{who}<td class="words">{state}</td>{budget}{"".join(map(cell, rest))}</tr>'


#: How a way to run a queue compares with doing nothing.
_STATES = {
    "better": ("✓", "fine", "better"),
    "worse": ("◆", "watch", "worse"),
    "same": ("–", "", "no difference"),
    "nothing": ("–", "", "what is compared with"),
    "happened": ("–", "", "what was"),
}


def ways(rows: Sequence[Way]) -> str:
    """The ways to run a queue as a table, the best first, each with how it compares with doing nothing."""
    return tabled(head(("Way", "State", *lab.COLUMNS), lab.COLUMNS[-1]), "".join(map(_way, rows)))


def _way(row: Way) -> str:
    *figures, worse = row.cells
    rest = ' class="rest"' if row.state == "happened" else ""
    return (
        f'<tr{rest}><th scope="row">{escape(row.name, NAME)}</th><td class="words">{tag(*_STATES[row.state])}</td>'
        f'{"".join(map(cell, figures))}<td class="words">{escape(worse)}</td></tr>'
    )


def answer(columns: Sequence[str], rows: Sequence[Sequence[str | None]], numeric: Sequence[bool]) -> str:
    """Rows of a statement as a table, numbers at the right; a null is told from a text that is empty."""
    sides = ["" if right else ' class="left"' for right in numeric]
    names = "".join(f'<th scope="col"{side}>{escape(name)}</th>' for name, side in zip(columns, sides, strict=True))
    body = "".join(f"<tr>{''.join(map(_value, row, sides))}</tr>" for row in rows)
    return tabled(names, body)


def _value(value: str | None, side: str) -> str:
    return '<td class="unknown left">null</td>' if value is None else f"<td{side}>{escape(value)}</td>"
