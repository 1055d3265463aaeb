"""Small pieces of HTML. Whatever comes from outside (tenants, reasons, labels) is escaped here, and only here.

Streamlit turns addresses, ``:names:`` and arrows of Markdown into links and pictures even where they are escaped: what
comes from outside stands in HTML, or passes :func:`plain`.
"""

from __future__ import annotations

import html
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from dashboard.pages import explained, spark
from dashboard.services.alerting import AlertCard, Happening, LimitCard, severity_rank
from dashboard.services.keys import QueueKey
from dashboard.services.overview import COLUMNS, Fact, QueueCard, Verdict
from dashboard.services.queue import COLUMNS as TENANT_COLUMNS
from dashboard.services.queue import READ_COLUMNS, TenantLine, read_cells
from dashboard.services.say import UNKNOWN
from dashboard.services.trends import Trend
from dashboard.theme import style
from lake.visible import visible

_SIGNS = {
    Verdict.ACT: ("▲", "act"),
    Verdict.WATCH: ("◆", "watch"),
    Verdict.UNKNOWN: ("?", ""),
    Verdict.FINE: ("✓", "fine"),
}
_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in string.punctuation})
#: Where Streamlit looks again after Markdown has been read: addresses, names of pictures, arrows.
_READ_AGAIN = re.compile(r"(?<=:)(?=//|[\w+-]+:)|(?<=www)(?=\.)|(?<=@)|(?<=[<>~-])(?=[->=])", re.IGNORECASE)
_JOINER = "\u2060"
#: The longest text, and the longest name, that a page shows whole.
TEXT, NAME = 1000, 120
#: Texts that stand on pages again and again are remembered as they are written: so many of them.
_KEPT = 4096
_DEEDS = {"alert": "▲", "resolved": "▽", "action": "◆"}


def plain(text: str) -> str:
    """``text`` for a Streamlit label, where Markdown would be read: every sign means itself.

    An invisible joiner breaks what would be read again; a text without such things is copied as it is.
    """
    return _READ_AGAIN.sub(_JOINER, visible(_unbroken(text), TEXT)).translate(_MARKDOWN)


@lru_cache(_KEPT)
def escape(text: str, longest: int = TEXT) -> str:
    """``text`` as HTML that shows it, cut where it is beyond all bounds."""
    return html.escape(visible(_unbroken(text), longest))


def _unbroken(text: str) -> str:
    """``text`` with spaces for the line breaks that HTML would show as such."""
    return " ".join(text.split("\n")).strip()


def title(text: str) -> str:
    """The heading of a page."""
    return f'<div class="sj"><h1>{escape(text)}</h1></div>'


def reserved(height: int) -> str:
    """An empty place of ``height`` pixels for what comes later, so that nothing below it moves then."""
    return f'<div class="sj" style="height:{height:d}px"></div>'


def style_sheet() -> str:
    """What the other pieces need once on a page: the style element, and what headings mean."""
    return f"<style>{style()}</style>{explained.all_terms()}"


def banner(title: str, reason: str, *, quiet: bool) -> str:
    """What must be known before anything below is read, loud; announced by screen readers when it appears."""
    sign = "◆" if quiet else "▲"
    return (
        f'<div class="sj"><div class="sj-banner{" quiet" if quiet else ""}" role="{"status" if quiet else "alert"}">'
        f"<strong>{sign} {escape(title)}</strong>{code(reason)}</div></div>"
    )


def done(title: str, reason: str) -> str:
    """What came of a click that was well; announced by screen readers when it appears."""
    said = f"<strong>✓ {escape(title)}</strong>{code(reason)}"
    return f'<div class="sj"><div class="sj-banner done" role="status">{said}</div></div>'


def alerts(cards: Sequence[AlertCard]) -> str:
    """Alerts, each with its severity, what it says, since when and about whom."""
    return f'<div class="sj"><ul class="sj-alerts">{"".join(_alert(card) for card in cards)}</ul></div>'


def _alert(card: AlertCard) -> str:
    loud = loudness(card)
    tag = f"▲ {card.severity}" if card.firing else "pending"
    what = escape(card.summary or card.title)
    if card.fingerprint:
        what = f'<a href="alerts?alert={quote(card.fingerprint, safe="")}" target="_self">{what}</a>'
    value = f"{'value' if card.renewed else 'value then'} {card.value}"
    value += "" if card.threshold == UNKNOWN else f", threshold {card.threshold}"
    return (
        f'<li class="{(loud or "mild") if card.firing else "pending"}"><div class="head">'
        f'<span class="sj-tag {loud if card.firing else ""}">{escape(tag)}</span>'
        f'<span class="what">{what}</span></div>'
        f'<p class="dim">{escape(f"{card.title} {card.since} · {card.about} · {value}")}</p></li>'
    )


def loudness(card: AlertCard) -> str:
    """How loud an alert of this severity looks."""
    rank = severity_rank(card.severity)
    return "act" if rank <= severity_rank("error") else "watch" if rank <= severity_rank("ticket") else ""


def verdict(card: QueueCard) -> str:
    """A queue's verdict as sign and word, with its mode."""
    return f'<div class="sj">{_verdict(card)} <span class="dim">{escape(card.mode)}</span></div>'


def _verdict(card: QueueCard) -> str:
    sign, tone = _SIGNS[card.verdict]
    return f'<span class="sj-tag {tone}">{sign} {escape(card.verdict.word)}</span>'


def queue(card: QueueCard) -> str:
    """A queue's sentence and figures."""
    return (
        f'<div class="sj"><p class="sj-sentence">{escape(card.predicate)}</p>{facts_of(card.facts, card.unknown)}</div>'
    )


def queues(cards: Sequence[QueueCard], caption: str, trends: Mapping[QueueKey, Trend] | None = None) -> str:
    """Many queues as a table, each with its last hour; each name leads to its page."""
    head = explained.heads(("Queue", "State", "Last hour", *COLUMNS))
    rows = "".join(_queue_row(card, (trends or {}).get(card.key)) for card in cards)
    return tabled(head, rows, caption, "sj-queues")


def _queue_row(card: QueueCard, trend: Trend | None) -> str:
    pictures = {"Backlog": spark.backlog(trend), "In → out": spark.flow(trend)}
    cells = "".join(cell(text, pictures.get(name, "")) for name, text in zip(COLUMNS, card.cells, strict=True))
    head = f'<th scope="row">{queue_link(card.name)}</th><td>{_verdict(card)}</td>'
    return f"<tr>{head}<td>{spark.hour(trend)}</td>{cells}</tr>"


def tabled(head: str, rows: str, caption: str = "", kind: str = "") -> str:
    """A table of ``rows`` below ``head``, both HTML, of the class ``kind``; a ``caption`` is text. Where it is wider
    than its place, keys move it, too."""
    above = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    return (
        f'<div class="sj sj-scroll" tabindex="0"><table class="{f"sj-table {kind}".strip()}">{above}'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def listed(items: str) -> str:
    """A list of ``items``, which are HTML."""
    return f'<div class="sj"><ul class="sj-list">{items}</ul></div>'


def bar(percent: float, *, loud: bool = False) -> str:
    """A bar, ``percent`` of its place long, beside the figure that says the same."""
    tone = " act" if loud else ""
    return f'<span class="sj-bar{tone}" aria-hidden="true"><i style="width:{percent:.0f}%"></i></span>'


@lru_cache(_KEPT)
def queue_link(name: str) -> str:
    """A queue's name, which leads to its page."""
    return f'<a href="queue?queue={quote(name, safe="")}" target="_self">{escape(name, NAME)}</a>'


def cell(text: str, picture: str = "") -> str:
    """A cell of a table; what is unknown looks it."""
    unknown = ' class="unknown"' if text == UNKNOWN else ""
    return f"<td{unknown}>{picture}{escape(text)}</td>"


def facts(items: Iterable[Fact]) -> str:
    """A row of figures with their labels and notes."""
    return f'<div class="sj">{facts_of(items)}</div>'


def facts_of(items: Iterable[Fact], because: str = "") -> str:
    """What is known, as figures; what is not stays small, all in one line that says why."""
    items = list(items)
    known = "".join(_fact(item) for item in items if item.value != UNKNOWN)
    missing = ", ".join(item.label[:1].lower() + item.label[1:] for item in items if item.value == UNKNOWN)
    why = f" – {because}" if because else ""
    unknown = f'<p class="dim sj-unknown">{code(f"Unknown: {missing}{why}.")}</p>' if missing else ""
    return (f'<dl class="sj-facts">{known}</dl>' if known else "") + unknown


def _fact(item: Fact) -> str:
    note = f"<small>{escape(item.note)}</small>" if item.note else ""
    return f"<div><dt>{explained.term(item.label)}</dt><dd>{escape(item.value)}{note}</dd></div>"


def limits(cards: Sequence[LimitCard]) -> str:
    """What holds somebody back now, until when, and why."""
    items = "".join(
        f'<li><span class="lead">◆ {escape(card.tenant, NAME)} on {escape(card.queue, NAME)}: '
        f"{escape(card.limit)}</span>"
        f'<p class="num">{escape(card.expires)}</p><p class="dim">{escape(card.reason)}</p></li>'
        for card in cards
    )
    return listed(items)


def timeline(events: Sequence[Happening]) -> str:
    """What alerts and actions did, the newest first."""
    items = "".join(
        f'<li><span class="dim num">{escape(event.when)}</span> {_DEEDS[event.kind]} '
        f'<span class="lead">{escape(event.what)}</span><p class="dim">{escape(event.why)}</p></li>'
        for event in events
    )
    return listed(items)


def tenants(lines: Sequence[TenantLine], caption: str) -> str:
    """The tenants of a queue as a table that screen readers can walk."""
    head = explained.heads(("Tenant", *TENANT_COLUMNS))
    return tabled(head, "".join(map(_tenant, lines)), caption)


def read_tenants(shares: Iterable[Mapping[str, Any]], caption: str) -> str:
    """What a reading of the broker told of a queue's tenants, as a table."""
    rows = (
        f'<tr><th scope="row">{escape(one["tenant"], NAME)}</th>{"".join(map(cell, read_cells(one)))}</tr>'
        for one in shares
    )
    return tabled(explained.heads(("Tenant", *READ_COLUMNS)), "".join(rows), caption)


def _tenant(line: TenantLine) -> str:
    noisy = ' <span class="sj-tag act">▲ noisy</span>' if line.noisy else ""
    width = 0 if line.share is None else max(0.0, min(1.0, line.share)) * 100
    rest = ' class="rest"' if line.drained == "–" and line.limit == "–" and line.oldest == "–" else ""
    shown = [escape(cell) for cell in line.cells]
    shown[1] += bar(width, loud=line.noisy)
    return (
        f'<tr{rest}><th scope="row">{escape(line.tenant, NAME)}{noisy}</th>'
        f"{''.join(f'<td>{cell}</td>' for cell in shown)}</tr>"
    )


def section(title: str, conclusion: str = "") -> str:
    """A heading with its conclusion below."""
    below = f'<p class="dim">{code(conclusion)}</p>' if conclusion else ""
    return f'<div class="sj"><h2>{escape(title)}</h2>{below}</div>'


def note(text: str) -> str:
    """A quiet remark."""
    return f'<div class="sj"><p class="dim">{code(text)}</p></div>'


def aside(text: str) -> str:
    """A line about what comes; where there is nothing to say, its place: it is said later, and nothing moves then."""
    said = f"→ {escape(text)}." if text else "&nbsp;"
    return f'<div class="sj"><p class="sj-ahead">{said}</p></div>'


def code(text: str) -> str:
    """Escaped text in which `backticks` set a command apart."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
