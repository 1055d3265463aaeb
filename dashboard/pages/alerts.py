"""Alerts: what fires and fired, why, who was told. Bound to the address ``?alert=…``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import operations, rule_files
from dashboard.pages import confirm, details, download, frame, markup
from dashboard.people import present
from dashboard.questions import noisy as question
from dashboard.repository import Repository
from dashboard.rule_files import RuleText
from dashboard.services import noisy
from dashboard.services.alerts import COLUMNS, AlertLine, AlertStory, alert_cells, alert_lines, alert_story
from dashboard.services.because import because, sayer
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.say import duration
from dashboard.services.series import on_the_hour
from lake.sql.parameters import can_be_named

#: Alerts in the table; beyond those they are only counted.
LINES = 100
#: For how long a resolved alert stays in the table, and deliveries are shown.
DAY = timedelta(days=1)
#: For how long the page silences an alert.
SILENCE = timedelta(hours=1)


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Alerts", url_path="alerts", icon=":material/notifications:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    fresh = frame.age_of_data(lake, health, now)
    if frame.rules_ran(lake) is None:
        frame.headed("What fires is unknown", lake, fresh, now)
        return
    names = short_names(QueueKey.of(row) for row in health)
    states, changes = lake.alert_states(), lake.alert_transitions()
    lines = alert_lines(frame.as_said_now(lake, states), changes, list(names), now, now - DAY, frame.figures_of(lake))
    frame.headed(_headline(lines), lake, fresh, now)
    if not lines:
        ran = "" if changes else " No alert rule has been evaluated on this lake yet: is `sojourn alert` running?"
        st.html(markup.note(f"No alert fires, none is pending, none was resolved in the last day.{ran}"))
        return
    chosen = _chosen(lines)
    if chosen is not None:
        state = next(row for row in states if row["fingerprint"] == chosen.fingerprint)
        told = lake.deliveries(on_the_hour(now, DAY))
        entry = frame.rule(state["rule"])
        why = because(state, entry, lake.definitions, now, changes)
        story = alert_story(chosen, state, changes, told, now, why, sayer(entry))
        rule = rule_files.of(state["rule"], rule_files.told())
        if rule.runbook:  # it stands below: the name of its file says no more
            story = replace(story, notes=tuple(note for note in story.notes if note[0] != "runbook"))
        queue = names.get(chosen.card.queue) if chosen.card.queue else None
        st.html(details.alert_story(story, queue, known=bool(why.conditions)))
        if not chosen.resolved:
            _look_after(lake.root, chosen.fingerprint, state["labels"], now)
        if why.conditions or why.besides:
            st.html(markup.section("Why it fired" if chosen.resolved else "Why it fires") + details.because(why))
            if not chosen.resolved and any(one.says == "noisy" for one in why.conditions):
                st.html(_noisy_now(lake, health, state["labels"]))
        _explain(rule)
        _story(story)
    st.html(
        markup.section(
            "All alerts", "What fires, the loudest first; what is pending; what was resolved in the last day."
        )
    )
    st.html(details.alert_table(lines[:LINES], chosen))
    download.csv("alerts", COLUMNS, lambda: [alert_cells(line) for line in lines], what="All of them as a file")
    if len(lines) > LINES:
        st.html(markup.note(f'{len(lines) - LINES:,} more: `sojourn sql "SELECT * FROM alert_states"` has them all.'))


def _noisy_now(lake: Repository, health: list[Row], labels: Mapping[str, str]) -> str:
    """How the tenant of an alert stands beside its queue's others now; nothing where no statement can ask it."""
    key, tenant = (
        QueueKey(labels.get("broker", ""), labels.get("queue", ""), labels.get("subscriber", "")),
        labels.get("tenant"),
    )
    waits = next((row["quiet_oldest_age_seconds"] for row in health if QueueKey.of(row) == key), None)
    if tenant is None or not can_be_named(key.broker, key.queue, key.subscriber, tenant):
        return ""
    (row,) = lake.now(question.beside_others(key, tenant))
    return details.figures("How it stands now", noisy.now(row, waits, lake.definitions.target_seconds))


def _headline(lines: Sequence[AlertLine]) -> str:
    firing = sum(line.card.firing for line in lines)
    pending = sum(not line.card.firing and not line.resolved for line in lines)
    said = "No alert fires" if not firing else f"{firing:,} alert{'s fire' if firing > 1 else ' fires'}"
    return said + (f", {pending:,} pending" if pending else "")


def _chosen(lines: Sequence[AlertLine]) -> AlertLine | None:
    """The alert that the address names, else the first."""
    asked = st.query_params.get("alert")
    found = next((line for line in lines if asked and line.fingerprint == asked), None)
    if asked and found is None:
        st.html(
            markup.banner("That alert is not here", "It was resolved more than a day ago, or never was.", quiet=True)
        )
    return found or lines[0]


def _explain(found: RuleText) -> None:
    """What to do about it, and the rule itself, folded."""
    if found.runbook:
        with st.expander("Runbook", icon=":material/menu_book:"):
            st.markdown(found.runbook)
    if found.rule:
        with st.expander("The rule: what it compares, and for how long", icon=":material/rule:"):
            st.code(found.rule, language="yaml", wrap_lines=True)


def _story(story: AlertStory) -> None:
    told, happened = st.columns(2, gap="large")
    with happened:
        st.html(markup.section("How it came") + details.steps(story.changes))
    with told:
        nobody = "No receiver was told of it in the last day. `sojourn alerts explain` says why."
        who = details.steps(story.deliveries) if story.deliveries else markup.note(nobody)
        st.html(markup.section("Who was told") + who)


def _look_after(root: Path, name: str, labels: Mapping[str, str], now: datetime) -> None:
    """What operators do about the alert ``name``: look after it, or have it told to nobody for a while."""
    acknowledge, explain = f"`sojourn alerts acknowledge {name}`", f"`sojourn alerts explain {name}`"
    confirm.outcome()  # above: what is asked hangs below its button
    st.html(markup.note(f"To look after it: {acknowledge}. Why it was told, or not: {explain}."))
    question = "Whoever was told of it hears no more of it until it resolves. If it lasts, you are reminded."
    doing = operations.acknowledge(root, name)
    hush = (
        f"Nobody is told of it for {duration(SILENCE.total_seconds())}, also if it ends and comes again. It fires on."
    )
    quiet = operations.silence(root, labels, now, SILENCE)
    with st.container(horizontal=True, gap="small"):
        confirm.button(present(), root, "Acknowledge", question, "acknowledge", name, doing, icon=":material/done:")
        confirm.button(present(), root, "Silence", hush, "silence", name, quiet, icon=":material/notifications_off:")
