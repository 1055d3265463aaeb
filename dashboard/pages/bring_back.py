"""The part of the page on dead letters that brings them back: the command, and for operators a button that gives it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import streamlit as st

from dashboard import people
from dashboard import redrives as drives
from dashboard.pages import confirm, details, markup
from dashboard.redrives import Redrive
from dashboard.repository import Repository
from dashboard.services import redrives
from dashboard.services.keys import QueueKey, Row
from dashboard.services.say import messages
from dashboard.services.series import on_the_hour

_WEEK = timedelta(days=7)
_EVERYBODY = "all tenants"


def show(
    lake: Repository, key: QueueKey, name: str, health: Sequence[Row], tenants: Sequence[str], now: datetime
) -> None:
    """Say how the dead letters of one queue are brought back, and which were."""
    held = redrives.sources(health, key)
    if not held:
        st.html(
            markup.section("Bring them back")
            + markup.note(
                "Which queue holds its dead letters is not known: `dead_letter_for` in the settings says so, or "
                "`sojourn redrive start` is told both names."
            )
        )
        return
    said = (
        "A canary first, watched until it is seen whether it dies again; then at the rate. It stops by itself where "
        "more than a tenth dies again, or quiet tenants wait longer."
    )
    st.html(markup.section("Bring them back", said))
    one = _chosen(key, held, tenants)
    st.code(one.command(), language="bash", wrap_lines=True)
    if drives.possible():
        confirm.outcome()  # above: what is asked hangs below its button
        question = (
            f"{one.canary} messages of {one.source} ({messages(held[one.source])} there) go back to {name} now, "
            f"then {one.rate:g} a second."
        )
        begin = partial(_start, lake.root, one)
        who = people.present()
        confirm.button(
            who, lake.root, "Start a canary", question, "redrive", _about(one), begin, icon=":material/redo:"
        )
    else:
        st.html(
            markup.note(
                "This dashboard was started without a settings file, so it cannot start one: run the command where "
                "`sojourn.toml` is."
            )
        )
    _under_way(lake, key, now)


def _chosen(key: QueueKey, held: dict[str, int | None], tenants: Sequence[str]) -> Redrive:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        source = st.selectbox("From", list(held), key=f"redrive from {key.full}", width=220) or next(iter(held))
        tenant = st.selectbox("Of", [_EVERYBODY, *tenants], key=f"redrive of {key.full}", width=180)
        canary = st.number_input("Canary", 1, 1000, 10, key=f"redrive canary {key.full}", width=120)
        rate = st.number_input("Messages/s", 0.1, 1000.0, 10.0, key=f"redrive rate {key.full}", width=140)
        subject = st.text_input(
            "Subject, where it is NATS",
            key=f"redrive subject {key.full}",
            max_chars=200,
            placeholder="orders.{tenant}",
            width=220,
        )
    only = "" if tenant in (None, _EVERYBODY) else tenant
    return Redrive(key.broker, source, key.queue, rate, canary, only or "", (subject or "").strip())


def _about(one: Redrive) -> str:
    return f"{one.broker}/{one.source} → {one.target}"


def _start(root: Path, one: Redrive, _: str) -> None:
    drives.start(root, one)


def _under_way(lake: Repository, key: QueueKey, now: datetime) -> None:
    found = redrives.redrives(lake.actions(on_the_hour(now, _WEEK)), key, now)
    if not found:
        return
    st.html(details.table(("Redrive", *redrives.COLUMNS), [(one.id, *one.cells) for one in found]))
    for one in found:
        if not one.over and drives.possible():
            begin = partial(_cancel, lake.root, one.id)
            question = f"Redrive {one.id} ends for good; what is back stays back."
            confirm.button(people.present(), lake.root, f"Cancel {one.id}", question, "cancel redrive", one.id, begin)


def _cancel(root: Path, redrive: str, _: str) -> None:
    drives.cancel(root, redrive)
