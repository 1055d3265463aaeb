"""The overview: what is wrong, who, is it draining, what acts now; one glance at 03:00."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import streamlit as st

from dashboard.pages import frame, markup, queue
from dashboard.repository import Repository
from dashboard.services.alerting import alert_cards, happenings, limit_cards
from dashboard.services.freshness import Level
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.overview import QueueCard, Verdict, headline, queue_cards
from dashboard.services.say import clock

#: Queues in trouble that get a card, and queues in the table; beyond those they are only counted.
CARDS = 6
LINES = 50


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    fresh = frame.age_of_data(lake, health, now)
    names = short_names(QueueKey.of(row) for row in health)
    transitions = lake.alert_transitions()
    alerts = alert_cards(lake.alert_states(), transitions, list(names), now)
    cards = queue_cards(health, lake.totals(), lake.noisy_tenants(), alerts, now, names)

    said = headline(cards, alerts, rules_ran=bool(transitions))
    if fresh is not None and fresh.level is Level.STALE:
        said = f"At {clock(fresh.as_of, now, seconds=True)} UTC: {said}"
    st.html(markup.title(said))
    st.html(markup.note(frame.as_of_line(fresh, now)))
    main, side = st.columns([2.3, 1], gap="large")
    with main:
        if alerts:
            st.html(markup.section("Alerts") + markup.alerts(alerts))
        _trouble(cards)
    with side:
        _acting(lake, now)
        _happened(lake, transitions, now)
    _all(cards)


def _trouble(cards: Sequence[QueueCard]) -> None:
    troubled = [card for card in cards if card.verdict is not Verdict.FINE]
    if not troubled:
        return
    st.html(markup.section("Queues that need attention"))
    for place, card in enumerate(troubled[:CARDS]):
        with st.container(border=True, key=f"card-{place}", gap="small"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _link(card)
                st.html(markup.verdict(card), width="content")
            st.html(markup.queue(card))
    if len(troubled) > CARDS:
        st.html(markup.note(f"{len(troubled) - CARDS:,} more stand in the table below."))


def _all(cards: Sequence[QueueCard]) -> None:
    more = f"the {LINES} most urgent of {len(cards):,}; the others are on the page “Queue”"
    caption = f"The worst first{'' if len(cards) <= LINES else f', {more}'}. In → out: messages that arrive and leave. "
    caption += (
        "Coverage: events against the broker's own count. Sampled: how long before these data the broker was read."
    )
    st.html(markup.section("All queues") + markup.queues(cards[:LINES], caption))


def _link(card: QueueCard) -> None:
    st.page_link(
        queue.page(),
        label=f"**{markup.plain(card.name)}**",
        icon=":material/arrow_forward:",
        icon_position="right",
        query_params={"queue": card.name},
        help=f"Tenants and history of {markup.plain(card.key.full)}",
    )


def _acting(lake: Repository, now: datetime) -> None:
    cards = limit_cards(lake.limits(), now)
    st.html(markup.section("Acting now", "" if cards else "No limit is in force."))
    if cards:
        st.html(markup.limits(cards))


def _happened(lake: Repository, transitions: list[Row], now: datetime) -> None:
    since = (now - timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
    recent = happenings((row for row in transitions if row["at"] >= since), lake.actions(since), now)
    quiet = (
        ""
        if recent
        else "Nothing in the last day."
        if transitions
        else ("No alert rule has been evaluated on this lake yet: is `sojourn alert` running?")
    )
    st.html(markup.section("What happened"))
    st.html(markup.timeline(recent) if recent else markup.note(quiet))
