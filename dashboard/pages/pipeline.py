"""The pipeline: can what the pages say be trusted, and if not, which link is weak."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.cost import Meter
from dashboard.evaluation import evaluation
from dashboard.pages import details, frame, markup
from dashboard.repository import Repository
from dashboard.services import pipeline
from dashboard.services.freshness import intervals
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.say import UNKNOWN
from dashboard.services.series import on_the_hour


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Pipeline", url_path="pipeline", icon=":material/verified:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    fresh = frame.age_of_data(lake, health, now)
    since = on_the_hour(now, timedelta(days=1))
    limit = frame.settings().stale_after_seconds
    refused, told = lake.refused(since), lake.deliveries(since)
    beats, gap, runs = lake.heartbeats(), lake.put_off(), evaluation(lake.root)
    often = min((seconds for seconds in intervals(health).values() if seconds), default=None)
    chain = pipeline.links(fresh, beats, gap, refused, told, now, limit, runs, lake.unread, often)
    off = pipeline.uncovered(health, short_names(QueueKey.of(row) for row in health))
    st.html(markup.title(pipeline.verdict(chain, fresh, off)))
    st.html(markup.note(frame.as_of_line(lake, fresh, now)))
    st.html(markup.section("From broker to webhook") + details.links(chain))
    st.html(
        markup.section("Brokers", "How far their data reach, and how long before that they were last asked themselves.")
        + details.table(("Broker", "Queues", "Newest data", "Newest reading"), pipeline.brokers(health, now))
    )
    said = "Events against the broker's own count. What is off is an estimate, and policies leave it alone."
    st.html(markup.section("Coverage", said))
    st.html(
        details.table(("Queue", "Coverage"), off) if off else markup.note("Every queue that is known both ways agrees.")
    )
    _cost(lake.root)


def _cost(root: Path) -> None:
    """What Sojourn itself takes of the machine that the pages come from."""
    if found := _meter(str(root)).read(root):
        rows = [
            (one.part, UNKNOWN if one.cores is None else f"{one.cores:.2f}", f"{one.megabytes:,.0f} MB")
            for one in found
        ]
        said = "Processor cores used over the last ten seconds or more, and memory, of what runs on this machine."
        st.html(markup.section("What Sojourn costs", said) + details.table(("Part", "Cores", "Memory"), rows))


@st.cache_resource(max_entries=4, show_spinner=False)
def _meter(root: str) -> Meter:
    return Meter()
