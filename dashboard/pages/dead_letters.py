"""Dead letters: which queues give messages up, how fast, since when, whose and why. Bound to ``?queue=…&range=…``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import streamlit as st

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import bring_back, choose, details, download, frame, lists, markup
from dashboard.pages.charts import CHART, pending
from dashboard.questions import dead_letters as questions
from dashboard.repository import Repository
from dashboard.services import dead_letters, series
from dashboard.services.dead_letters import DeadQueue
from dashboard.services.freshness import newest
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.say import count, instant
from dashboard.services.series import Span, on_the_hour
from dashboard.theme import CALM, LOUD
from lake.errors import UserError

_DAY = timedelta(days=1)
#: Pixels that are kept for what is not read yet: the table, and what is said of one queue.
_TABLE, _QUEUE = 300, 700


@dataclass(frozen=True, slots=True)
class _Queues:
    """Whoever dead-letters; ``rows`` by :func:`questions.queues`, looked for from ``since`` on, as of ``until``."""

    since: datetime
    until: datetime
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class _Past:
    """When, why and whose of one queue, each by its question; ``reasons``: what is wrong where they cannot be read."""

    span: Span
    until: datetime
    rates: list[Row]
    depths: list[Row]
    reasons: list[Row] | str
    tenants: list[Row]


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Dead letters", url_path="dead-letters", icon=":material/report:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    names = short_names(QueueKey.of(row) for row in health)
    fresh = frame.age_of_data(lake, health, now)
    newest_data = max(newest(health).values())
    told = lake.behind("dead letters", lambda past: _queues(past, newest_data))
    if told is None:  # its place is kept, so that nothing moves when it comes
        st.html(markup.title("Dead letters are being counted"))
        st.html(markup.note(frame.as_of_line(lake, fresh, now)))
        held = [(names[QueueKey.of(row)], count(row["depth"])) for row in health if row["dead_letter_for"]]
        if held:
            st.html(markup.section("Held now") + details.table(("Dead-letter queue", "Messages"), held))
        st.html(markup.reserved(_TABLE))
        return
    found = dead_letters.dead_queues(told.rows, names, told.until.astimezone(now.tzinfo))
    frame.headed(dead_letters.headline(found, names, told.rows), lake, fresh, now)
    if not found:
        since = instant(told.since, now)
        st.html(markup.note(f"Looked at: everything since {since}, and what dead-letter queues hold now."))
        return
    st.html(
        markup.note(
            "The most first. A message is dead-lettered once its queue has given it up; what waits in a "
            "dead-letter queue waits for somebody."
        )
    )
    st.html(lists.dead_queues(found, names))
    download.csv(
        "dead-letters",
        ("Queue", *dead_letters.COLUMNS),
        lambda: [(one.key.full, *one.cells) for one in found],
    )
    shown = {one.key: names[one.key] for one in found}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        chosen = _chosen(found, shown)
        stretch = choose.stretch()
    past = lake.behind(("dead letters", chosen, stretch), lambda past: _read(past, chosen, stretch, newest_data))
    if past is None:
        pending(f"{names[chosen]}: when", "Its history is being read.", _QUEUE)
        return
    _one(past, chosen, names[chosen], now.tzinfo or UTC)
    bring_back.show(lake, chosen, names[chosen], health, [row["tenant"] for row in past.tenants], now)


def _chosen(found: Sequence[DeadQueue], shown: dict[QueueKey, str]) -> QueueKey:
    if "queue" not in st.query_params and "queue" not in st.session_state:
        st.session_state["queue"] = shown[found[0].key]  # the worst; the others by the box
    return choose.queue(shown) or found[0].key


def _queues(past: Repository, until: datetime) -> _Queues:
    since = on_the_hour(until, _DAY)
    return _Queues(since, until, past.past(questions.queues(since)))


def _read(past: Repository, key: QueueKey, stretch: str, until: datetime) -> _Past:
    since, span = on_the_hour(until, _DAY), Span.ending(until, stretch)
    reasons: list[Row] | str
    try:
        reasons = past.past(questions.reasons([key], since, until.astimezone(UTC)))
    except UserError as error:  # events may be kept for less long, or elsewhere; the rest does not need them
        reasons = str(error)
    return _Past(
        span,
        until,
        rates=past.past(questions.rates(key, span)),
        depths=past.past(questions.depths(key, span)),
        reasons=reasons,
        tenants=past.past(questions.tenants(key, since)),
    )


def _one(past: _Past, key: QueueKey, name: str, zone: tzinfo) -> None:
    """When, why and whose."""
    span, until = replace(past.span, zone=zone), past.until.astimezone(zone)  # what was found is everybody's
    deaths = {row["at"]: row["dead_lettered"] for row in past.rates}
    held = series.last_values(span, past.depths, "dlq_depth")
    total = sum(count for at, count in deaths.items() if at > span.start)
    said = f"{span.words}. {total:,} dead-lettered" + (
        f", {held.last:,.0f} wait in dead-letter queues." if held is not None and held.last is not None else "."
    )
    st.html(markup.section(f"{name}: when", said))
    curve = series.Curve("dead-lettered", tuple(float(deaths.get(second, 0)) for second in span.seconds[1:]))
    figure = figures.bars(span, (Line(f"dead-lettered in {span.step} s", LOUD), curve))
    if held is not None:
        figures.beside(figure, span, (Line("wait in dead-letter queues", CALM[0], width=2.4, step=True), held))
    st.plotly_chart(figure, config=CHART, key=f"dead {key.full}", alt=f"{name}: when. {said}")
    st.html(markup.section("Why", "By the reason that the newest events of the last day give."))
    if isinstance(past.reasons, str):
        st.html(markup.note(f"The reasons could not be read: {past.reasons}"))
    else:
        columns = ("Reason", "Messages", "Tenants", "First", "Last", "Newest message")
        nobody = (
            "No event tells a reason: messages were given up where only the broker saw it, or before events were kept."
        )
        cells = dead_letters.reason_cells(past.reasons, until)
        st.html(details.table(columns, cells) if cells else markup.note(nobody))
    if past.tenants:
        st.html(markup.section("Whose"))
        cells = dead_letters.tenant_cells(past.tenants, until)
        st.html(details.table(("Tenant", "Messages", "First", "Last"), cells))
