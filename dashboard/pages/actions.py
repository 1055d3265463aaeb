"""Actions: what holds somebody back now, what waits for a yes, what would have been done, and the journal."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import streamlit as st

from dashboard.pages import details, frame, markup
from dashboard.repository import Repository
from dashboard.services.actions import journal, standings
from dashboard.services.alerting import limit_cards
from dashboard.services.keys import Row
from dashboard.services.series import on_the_hour

_WEEK = timedelta(days=7)


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Actions", url_path="actions", icon=":material/speed:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    fresh = frame.age_of_data(lake, health, now)
    limits = limit_cards(lake.limits(), now)
    since = on_the_hour(now, _WEEK)
    done, waiting = lake.actions(since), standings(lake.last_decisions(since), now)
    proposed, shadows = [one for one in waiting if one.proposed], [one for one in waiting if not one.proposed]
    st.html(markup.title(_headline(len(limits), len(proposed))))
    st.html(markup.note(frame.as_of_line(fresh, now)))
    if proposed:
        st.html(markup.section("Waits for a yes", "In force once somebody approves: `sojourn actions approve ID`."))
        st.html(details.standings(proposed))
    held = "" if limits else "No limit is in force."
    st.html(markup.section("In force", held))
    if limits:
        st.html(markup.limits(limits))
        st.html(markup.note("To lift one: `sojourn actions revoke ID`. To stop all policies: `sojourn actions pause`."))
    if shadows:
        st.html(markup.section("Dry runs", "What policies would do now. Nobody obeys these."))
        st.html(details.standings(shadows))
    entries = journal(done, now)
    st.html(markup.section("Journal", "What policies decided in the last week, the newest first." if entries else ""))
    st.html(details.journal(entries) if entries else markup.note("No policy has decided anything in the last week."))


def _headline(limits: int, proposed: int) -> str:
    said = "Nobody is held back" if not limits else f"{limits:,} limit{'s are' if limits > 1 else ' is'} in force"
    return said + (f", {proposed:,} wait{'s' if proposed == 1 else ''} for a yes" if proposed else "")
