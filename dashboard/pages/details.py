"""HTML of the pages that go into detail: alerts one by one, what policies decided, the pipeline, why messages wait.

As everywhere, what comes from outside passes :func:`dashboard.pages.markup.escape`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from dashboard.pages.markup import NAME, bar, cell, code, escape, facts_of, listed, loudness, queue_link, tabled
from dashboard.services.actions import Entry, Suggestion
from dashboard.services.alerting import AlertCard
from dashboard.services.alerts import AlertLine, AlertStory, Step
from dashboard.services.because import Because
from dashboard.services.pipeline import Link
from dashboard.services.why import Line

#: Why a threshold is unknown: of a rule whose conditions are known, and of one that no file has.
NO_THRESHOLD = {
    True: "the rule holds its value against no single number; its conditions stand below",
    False: "the rule is not in the rule files",
}


def because(found: Because) -> str:
    """Every condition of a rule beside what it saw; nothing where they are not known."""
    rows = "".join(
        f'<tr><th scope="row" class="sj-sql"><code>{escape(one.says, 400)}</code>'
        f"{f'<small>{escape(one.means, 400)}</small>' if one.means else ''}</th>"
        f'<td class="words">{escape(one.saw, 400)}</td></tr>'
        for one in found.conditions
    )
    besides = ", ".join(f"{escape(name, NAME)} {escape(figure, NAME)}" for name, figure in found.besides)
    head = '<th scope="col" class="words">Each of these held</th><th scope="col" class="words">What it saw then</th>'
    table = tabled(head, rows) if rows else ""
    return table + (f'<div class="sj"><p class="dim num">Besides, it saw: {besides}.</p></div>' if besides else "")


def figures(title: str, told: Iterable[tuple[str, str]]) -> str:
    """Figures under ``title``, each with what it is held against."""
    rows = "".join(f"<dt>{escape(name, NAME)}</dt><dd>{escape(text, 400)}</dd>" for name, text in told)
    return f'<div class="sj"><h3>{escape(title)}</h3><dl class="sj-notes">{rows}</dl></div>'


def alert_table(lines: Sequence[AlertLine], chosen: AlertLine | None) -> str:
    """Many alerts as a table; each name leads to the page about it."""
    head = "".join(f'<th scope="col" class="words">{name}</th>' for name in ("Alert", "State", "Since"))
    head += "".join(f'<th scope="col">{name}</th>' for name in ("Value", "Threshold"))
    head += '<th scope="col" class="words">About</th>'
    return tabled(head, "".join(_alert_row(line, line is chosen) for line in lines), kind="sj-alerted")


def _alert_row(line: AlertLine, chosen: bool) -> str:
    card = line.card
    name = f'<a href="alerts?alert={quote(line.fingerprint, safe="")}" target="_self">{escape(card.title, NAME)}</a>'
    here = ' aria-current="true"' if chosen else ""
    rest = ' class="rest"' if line.resolved else ""
    state = "▽ resolved" if line.resolved else _alert_sign(card)
    return (
        f'<tr{here}{rest}><th scope="row">{name}</th><td class="words">{state}</td>'
        f'<td class="words">{escape(card.since.removeprefix("since "))}</td>{cell(line.value)}{cell(line.threshold)}'
        f'<td class="words">{escape(card.about)}</td></tr>'
    )


def _alert_sign(card: AlertCard) -> str:
    tone = loudness(card) if card.firing else ""
    return f'<span class="sj-tag {tone}">{escape(f"▲ {card.severity}" if card.firing else "pending")}</span>'


def alert_story(story: AlertStory, queue: str | None, *, known: bool) -> str:
    """One alert: what it says, about whom, its figures, what else its rule notes, where its runbook is; ``known``:
    whether its conditions are."""
    card = story.line.card
    state = "▽ resolved" if story.line.resolved else _alert_sign(card)
    links = []
    if story.runbook:
        links.append(f'<a href="{html.escape(story.runbook)}" target="_blank" rel="noopener noreferrer">Runbook</a>')
    if queue:
        links.append(f"Queue {queue_link(queue)}")
    notes = "".join(f"<dt>{escape(name, NAME)}</dt><dd>{escape(text)}</dd>" for name, text in story.notes)
    return (
        f'<div class="sj"><h2>{escape(card.title, NAME)}</h2><p>{state} '
        f'<span class="dim">{escape(f"{card.since} · {card.about}")}</span></p>'
        f'<p class="sj-sentence">{escape(card.summary)}</p>{facts_of(story.facts, NO_THRESHOLD[known])}'
        f"{f'<dl class=sj-notes>{notes}</dl>' if notes else ''}<p>{' · '.join(links)}</p></div>"
    )


def steps(found: Sequence[Step]) -> str:
    """What happened one after the other, the newest first; what went wrong has a sign."""
    items = "".join(
        f'<li><span class="dim num">{escape(step.when)}</span> {"▲ " if step.bad else ""}'
        f'<span class="lead">{escape(step.what)}</span><p class="dim">{escape(step.why)}</p></li>'
        for step in found
    )
    return listed(items)


def suggestions(found: Sequence[Suggestion]) -> str:
    """Limits that nobody obeys: proposals, with the number by which they are approved, and dry runs."""
    items = "".join(
        f'<li><span class="lead">{escape(one.tenant, NAME)} on {escape(one.queue, NAME)}: {escape(one.limit)}</span>'
        f'<p class="num">{escape(f"{one.policy}, {one.until}")}{_approval(one)}</p>'
        f'<p class="dim">{escape(one.reason)}</p></li>'
        for one in found
    )
    return listed(items)


def _approval(one: Suggestion) -> str:
    return f" · <code>sojourn actions approve {escape(one.action, NAME)}</code>" if one.proposed else ""


def journal(entries: Sequence[Entry]) -> str:
    """What policies decided, each with what it saw."""
    items = "".join(
        f'<li><span class="dim num">{escape(entry.when)}</span> {"▲" if entry.bad else "◆"} '
        f'<span class="lead">{escape(entry.what)}</span> <span class="dim">{escape(entry.outcome)}</span>'
        f'<p class="dim">{escape(f"{entry.policy}: {entry.reason}")}</p>'
        f"{_seen(entry)}</li>"
        for entry in entries
    )
    return listed(items)


def _seen(entry: Entry) -> str:
    """What the decision saw, folded: it matters to who doubts it."""
    if not entry.seen:
        return ""
    told = ", ".join(f"{escape(name, NAME)} {escape(value, NAME)}" for name, value in entry.seen)
    return f'<details class="dim num"><summary>What it saw</summary><p>{told}</p></details>'


def parts(lines: Sequence[Line], notes: Sequence[str]) -> str:
    """A rise in its parts, each with a bar as long as its seconds are many and a link to the SQL behind it."""
    most = max((abs(line.seconds) for line in lines), default=0.0) or 1.0
    rows = "".join(_part(line, abs(line.seconds) / most * 100) for line in lines)
    said = "".join(f'<p class="dim">{escape(note)}</p>' for note in notes)
    head = '<th scope="col">Cause</th><th scope="col">Wait</th><th scope="col" class="words">What changed</th>'
    head += '<th scope="col">Behind it</th>'
    return tabled(head, rows, kind="sj-parts") + (f'<div class="sj sj-below">{said}</div>' if said else "")


def _part(line: Line, width: float) -> str:
    asked = f"sql?sql={quote(line.sql.strip(), safe='')}"
    seconds = escape(line.words) + bar(width, loud=line.main)
    return (
        f'<tr><th scope="row">{escape(line.cause)}</th><td>{seconds}</td>'
        f'<td class="words">{escape(line.because, 400)}</td>'
        f'<td><a href="{asked}" target="_self" aria-label="The SQL behind {escape(line.cause)}">SQL</a></td></tr>'
    )


def links(chain: Sequence[Link]) -> str:
    """The links of the pipeline, each with a sign and a word for how it is."""
    rows = "".join(
        f'<tr><th scope="row">{_link_sign(link)} {escape(link.name)}</th><td class="words">{escape(link.state)}</td>'
        f'<td class="words">{code(link.note)}</td></tr>'
        for link in chain
    )
    head = "".join(f'<th scope="col" class="words">{name}</th>' for name in ("Link", "State", "What it means"))
    return tabled(head, rows, kind="sj-links")


def _link_sign(link: Link) -> str:
    if link.good is None:
        return '<span class="sj-tag">– not there</span>'
    return '<span class="sj-tag fine">✓ good</span>' if link.good else '<span class="sj-tag watch">◆ look</span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of texts, the first of each row its heading, of the class ``kind``."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(first, NAME)}</th>{"".join(cell(text) for text in rest)}</tr>'
        for first, *rest in rows
    )
    return tabled(head, body, kind=kind)
