"""The large picture of one queue on the overview: when it began, who it was, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import streamlit as st

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import markup
from dashboard.pages.charts import CHART, age_lines, highest, reference
from dashboard.repository import Repository
from dashboard.services import series
from dashboard.services import story as words
from dashboard.services.alerting import happenings
from dashboard.services.keys import QueueKey, Row, concerns
from dashboard.services.overview import QueueCard
from dashboard.services.series import Span
from dashboard.theme import CALM

#: The longest range that is drawn here; the queue's own page has longer ones.
LONGEST = "1 h"


def show(lake: Repository, card: QueueCard, transitions: Sequence[Row], now: datetime) -> None:
    """Draw the queue of ``card``: backlog by tenant and age of first attempt, else the broker's own count."""
    seen = any(QueueKey.of(row) == card.key for row in lake.totals())
    since, until = lake.history_bounds(card.key)
    span = Span.ending(until, _range((until - since).total_seconds()) if seen else LONGEST)
    about = [entry for entry in transitions if concerns(entry["labels"], card.key)]
    done = [entry for entry in lake.actions() if concerns(entry, card.key)]
    marks = happenings(about, done, now, limit=60)
    legend = " ▲ an alert fires, ▽ it is resolved, ◆ an action." if any(span.holds(mark.at) for mark in marks) else ""
    if not seen:
        states = lake.health_history(card.key, span)
        depth = series.last_values(span, states, "depth")
        if depth is None:
            return
        figure = figures.lines(span, [(Line("the broker's own count", CALM[1], step=True), depth)], "messages", marks)
        said = words.depth(depth)
    else:
        noisy = lake.once_noisy(card.key, span)
        curves = series.levels(
            span, lake.backlog_changes(card.key, span, series.TOP), "backlog", by="tenant", known_from=since
        )
        ages, p50, p99 = age_lines(lake, card.key, span, noisy)
        figure = figures.story(span, curves, noisy, ages, reference(lake, highest(ages)), marks)
        said = f"{words.backlog(curves, span, noisy)} {words.ages(p50, p99)}"
    title = f"{card.name}: how it came to this"
    st.html(markup.section(title, f"{span.words}. {said}{legend}"))
    st.plotly_chart(figure, config=CHART, key=f"story {card.key.full}", alt=f"{title}. {said}")


def _range(seconds: float) -> str:
    """The shortest range that holds what is known, up to an hour."""
    return next((name for name, (length, _) in series.RANGES.items() if length >= seconds or name == LONGEST), LONGEST)
