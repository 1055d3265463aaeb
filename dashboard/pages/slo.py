"""Objectives: who burns the budget, how fast, what is left. Bound to ``?slo=…&find=…&page=…&whose=…&range=…``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

import streamlit as st

from alerts.objectives import SloEntry
from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import choose, download, frame, lists, markup
from dashboard.pages.charts import CHART, pending
from dashboard.questions import slo as questions
from dashboard.repository import Repository
from dashboard.services import slo
from dashboard.services.freshness import newest
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.series import Span
from dashboard.services.slo import Burn
from dashboard.theme import LOUD

#: Of whom the objective is for, on one page.
ROWS = 25
#: What is held up to view where nobody has declared an objective: this much within the lake's target.
ASSUMED = 0.99
#: Pixels that are kept for the table while it is not read yet.
_TABLE = 500


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="SLO", url_path="slo", icon=":material/target:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    names = short_names(QueueKey.of(row) for row in health)
    declared = {one.slo: one for one in frame.objectives()}
    top = st.container(gap="small")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        one = _chosen(declared, lake.definitions.target_seconds)
        find = choose.text("Queue or tenant", "find")
    at = max(newest(health).values())
    whose = (one.model_dump_json(), find)

    def counted(first_seconds: float | None = None) -> Row | None:
        return lake.behind(("slo", *whose), lambda past: past.past(questions.counted(one, at, find))[0], first_seconds)

    total = counted(0.0)
    with top:
        fresh = frame.age_of_data(lake, health, now)
        title = st.container()
        if total is None:  # said before anything below it is there; later an empty place would be one for a moment
            title = title.empty()
            title.html(markup.title("Budgets are being counted"))
        st.html(markup.note(frame.as_of_line(lake, fresh, now)))
    total = total or counted()
    if not declared:
        st.html(
            markup.note(
                "No objective is declared, and none alerts: this is what the lake’s target would make of one. "
                "Declare them under `slos:` in a rule file that `[alert] rules` names."
            )
        )
    place = choose.page_of(total["them"], ROWS) if total else 1
    ranked = lake.behind(("slo", *whose, place), lambda past: past.past(questions.ranked(one, at, find, ROWS, place)))
    if total is None or ranked is None:  # their place is kept, so that nothing moves when they come
        title.html(markup.title("Budgets are being counted"))
        st.html(markup.reserved(_TABLE))
        return
    shown = slo.burns(one, ranked)
    title.html(frame.headline(slo.headline(total, names, shown), fresh, now))
    st.html(
        markup.note(
            f"{slo.promise(one)}. A burn of 1 × spends the budget in just that time; it is too fast where a long and "
            "a short window both say so. Late is counted over the period as far as history goes."
        )
    )
    if not shown:
        return
    st.html(lists.burns(shown, slo.columns(one), names))
    download.csv(
        "slo",
        ("Whose", "Burns", *slo.columns(one)),
        lambda: [(slo.name(burn, names), burn.severity or "", *burn.cells) for burn in shown],
    )
    _over_time(lake, one, shown, names, at, now.tzinfo or UTC)


def _chosen(declared: dict[str, SloEntry], target: float) -> SloEntry:
    if not declared:
        return SloEntry.model_validate({"slo": "FirstAttempt", "objective": ASSUMED, "within": target})
    if (asked := st.query_params.get("slo")) and asked not in declared:
        del st.query_params["slo"]
    name = st.selectbox("Objective", list(declared), key="slo", bind="query-params", width=300)
    return declared[name or next(iter(declared))]


def _over_time(
    lake: Repository,
    one: SloEntry,
    shown: tuple[Burn, ...],
    names: dict[QueueKey, str],
    at: datetime,
    zone: tzinfo,
) -> None:
    labels = {slo.name(burn, names): burn for burn in shown}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        if (asked := st.query_params.get("whose")) and asked not in labels:
            del st.query_params["whose"]
        whose = st.selectbox("Whose", list(labels), key="whose", bind="query-params", width=420)
        stretch = choose.stretch()
    name = whose if whose in labels else next(iter(labels))
    burn = labels[name]

    def read(past: Repository) -> tuple[Span, list[Row]]:
        span = Span.ending(at, stretch)
        return span, past.past(questions.over_time(one, burn.key, burn.tenant, span))

    found = lake.behind(("burn", one.model_dump_json(), burn.key, burn.tenant, stretch), read)
    if found is None:
        pending(f"{name}: burn", "Its history is being read.", figures.HEIGHT)
        return
    span = replace(found[0], zone=zone)  # what was found is everybody's
    curve = slo.over_time(one, span, found[1])
    most = max((value for value in curve.values if value is not None), default=None)
    said = (
        "Nothing was attempted."
        if most is None
        else f"At most {most:,.3g} × in {span.step} s; 1 × is just within the budget."
    )
    st.html(markup.section(f"{name}: burn", f"{span.words}. {said}"))
    figure = figures.lines(span, [(Line("burn rate", LOUD, step=True), curve)], "× budget", (), target=(1.0, "1 ×"))
    st.plotly_chart(figure, config=CHART, key=f"burn {one.slo}", alt=f"{name}: burn. {said}")
