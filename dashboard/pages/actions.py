"""Actions: what holds somebody back now, what waits for a yes, what would have been done, and the journal."""

from __future__ import annotations

from dataclasses import astuple
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import operations
from dashboard.pages import confirm, details, download, frame, markup
from dashboard.people import Person, present
from dashboard.repository import Repository
from dashboard.services.actions import COLUMNS, Suggestion, journal, steps, suggestions
from dashboard.services.alerting import LimitCard, limit_cards
from dashboard.services.keys import Row
from dashboard.services.series import on_the_hour
from dashboard.writes import changes

_WEEK = timedelta(days=7)
#: Limits with a button of their own, and lines of what people did.
LINES = 20
#: What the alert process leaves in the lake while its kill switch is set.
PAUSED = Path("state") / "control" / "paused"


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Actions", url_path="actions", icon=":material/speed:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    fresh = frame.age_of_data(lake, health, now)
    who = present()
    limits = limit_cards(lake.limits(), now)
    since = on_the_hour(now, _WEEK)
    done, waiting = lake.actions(since), suggestions(lake.last_decisions(since), now)
    proposed, shadows = [one for one in waiting if one.proposed], [one for one in waiting if not one.proposed]
    known = "actions" not in lake.unread
    said = _headline(len(limits), len(proposed)) if known else "What is in force is unknown"
    frame.headed(said, lake, fresh, now)
    confirm.outcome()
    if proposed:
        st.html(markup.section("Waits for a yes", "In force once somebody approves: `sojourn actions approve ID`."))
        for one in proposed:
            st.html(details.suggestions([one]))
            _approve(who, lake.root, one)
    held = "" if limits else "No limit is in force." if known else "Unknown."
    st.html(markup.section("In force", held))
    for limit in limits[:LINES]:
        st.html(markup.limits([limit]))
        if limit.action:
            _revoke(who, lake.root, limit)
    if len(limits) > LINES:
        st.html(markup.limits(limits[LINES:]))
    _switch(who, lake.root)
    if shadows:
        st.html(markup.section("Dry runs", "What policies would do now. Nobody obeys these."))
        st.html(details.suggestions(shadows))
    entries = journal(done, now)
    st.html(markup.section("Journal", "What policies decided in the last week, the newest first." if entries else ""))
    nothing = "No policy has decided anything in the last week." if known else "Unknown."
    st.html(details.journal(entries) if entries else markup.note(nothing))
    if entries:
        download.csv("journal", COLUMNS, lambda: [astuple(entry)[: len(COLUMNS)] for entry in entries])
    if told := changes(lake.root, LINES):
        st.html(markup.section("By people", "What was asked on these pages, the newest first."))
        st.html(details.steps(steps(told, now)))


def _headline(limits: int, proposed: int) -> str:
    said = "Nobody is held back" if not limits else f"{limits:,} limit{'s are' if limits > 1 else ' is'} in force"
    return said + (f", {proposed:,} wait{'s' if proposed == 1 else ''} for a yes" if proposed else "")


def _approve(who: Person | None, root: Path, one: Suggestion) -> None:
    question = f"{one.tenant} on {one.queue} is held to {one.limit} from now on, until the policy releases it."
    doing = operations.action(root, one.action, "approve")
    confirm.button(who, root, "Approve", question, "approve", one.action, doing, icon=":material/check:")


def _revoke(who: Person | None, root: Path, one: LimitCard) -> None:
    question = f"Nothing holds {one.tenant} on {one.queue} back any more; the policy leaves it alone for a while."
    doing = operations.action(root, one.action, "revoke")
    confirm.button(who, root, "Revoke", question, "revoke", one.action, doing, icon=":material/undo:")


def _switch(who: Person | None, root: Path) -> None:
    """The kill switch, or the way back from it."""
    if (root / PAUSED).exists():
        st.html(markup.banner("All policies are paused", "Nothing is decided until they are resumed.", quiet=True))
        question = "Policies decide again, and may limit tenants."
        confirm.button(
            who, root, "Resume all policies", question, "resume", "policies", operations.switch(root, "resume")
        )
        return
    st.html(markup.section("All policies", "For when they do harm: every limit is lifted, nothing is decided."))
    question = "Every limit is lifted now, and no policy decides anything until they are resumed."
    doing = operations.switch(root, "pause")
    confirm.button(who, root, "Pause all policies", question, "pause", "policies", doing, icon=":material/pause:")
