"""Dead letters: which queues give messages up, how fast, since when, whose and why. Bound to ``?queue=…&range=…``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import bring_back, choose, details, download, frame, lists, markup
from dashboard.pages.charts import CHART
from dashboard.questions import dead_letters as questions
from dashboard.repository import Repository
from dashboard.services import dead_letters, series
from dashboard.services.dead_letters import DeadQueue
from dashboard.services.freshness import newest
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.say import instant
from dashboard.services.series import Span, on_the_hour
from dashboard.theme import CALM, LOUD
from lake.errors import UserError

_DAY = timedelta(days=1)


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Dead letters", url_path="dead-letters", icon=":material/report:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    names = short_names(QueueKey.of(row) for row in health)
    fresh = frame.age_of_data(lake, health, now)
    until = max(newest(health).values())
    since = on_the_hour(until, _DAY)
    rows = lake.past(questions.queues(since))
    found = dead_letters.dead_queues(rows, names, until)
    st.html(markup.title(dead_letters.headline(found, names, rows)))
    st.html(markup.note(frame.as_of_line(fresh, now)))
    if not found:
        st.html(
            markup.note(f"Looked at: everything since {instant(since, now)}, and what dead-letter queues hold now.")
        )
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
    whose = _one(lake, chosen, names[chosen], Span.ending(until.astimezone(now.tzinfo), stretch), since, until)
    bring_back.show(lake, chosen, names[chosen], health, whose, now)


def _chosen(found: Sequence[DeadQueue], shown: dict[QueueKey, str]) -> QueueKey:
    if "queue" not in st.query_params and "queue" not in st.session_state:
        st.session_state["queue"] = shown[found[0].key]  # the worst; the others by the box
    return choose.queue(shown) or found[0].key


def _one(lake: Repository, key: QueueKey, name: str, span: Span, since: datetime, until: datetime) -> list[str]:
    """When, why and whose; gives back whose."""
    deaths = {row["at"]: row["dead_lettered"] for row in lake.past(questions.rates(key, span))}
    held = series.last_values(span, lake.past(questions.depths(key, span)), "dlq_depth")
    total = sum(count for at, count in deaths.items() if at > span.start)
    said = f"{span.words}. {total:,} dead-lettered" + (
        f", {held.last:,.0f} wait in dead-letter queues." if held is not None and held.last is not None else "."
    )
    st.html(markup.section(f"{name}: when", said))
    curve = series.Curve("dead-lettered", tuple(float(deaths.get(second, 0)) for second in span.seconds[1:]))
    figure = figures.bars(span, (Line(f"dead-lettered in {span.step} s", LOUD), curve))
    if held is not None:
        figures.beside(figure, span, (Line("wait in dead-letter queues", CALM[1], "dot", step=True), held))
    st.plotly_chart(figure, config=CHART, key=f"dead {key.full}", alt=f"{name}: when. {said}")
    st.html(markup.section("Why", "By the reason that the newest events of the last day give."))
    try:
        reasons = lake.past(questions.reasons([key], since, until.astimezone(UTC)))
    except UserError as error:
        st.html(markup.note(f"The reasons could not be read: {error}"))
    else:
        columns = ("Reason", "Messages", "Tenants", "First", "Last", "Newest message")
        nobody = (
            "No event tells a reason: messages were given up where only the broker saw it, or before events were kept."
        )
        st.html(details.table(columns, dead_letters.reason_cells(reasons, until)) if reasons else markup.note(nobody))
    whose = lake.past(questions.tenants(key, since))
    if whose:
        st.html(markup.section("Whose"))
        st.html(details.table(("Tenant", "Messages", "First", "Last"), dead_letters.tenant_cells(whose, until)))
    return [row["tenant"] for row in whose]
