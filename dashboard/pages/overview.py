"""The overview: what is wrong, who, is it draining, what acts now; one glance at 03:00."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import streamlit as st

from dashboard import repository
from dashboard.pages import download, frame, markup, queue, spark, story
from dashboard.repository import Repository
from dashboard.services import forecast
from dashboard.services.alerting import alert_cards, happenings, in_short, limit_cards
from dashboard.services.freshness import Level
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.overview import COLUMNS, QueueCard, headline, queue_cards
from dashboard.services.say import instant
from dashboard.services.series import on_the_hour
from dashboard.services.steady import pictured, steady
from dashboard.services.trends import Trend, last_hour, trends
from lake.errors import SojournError
from lake.visible import visible

log = logging.getLogger(__name__)
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
    alerts = alert_cards(lake.alert_states(), transitions, list(names), now, frame.figures_of(lake))
    cards = queue_cards(health, lake.totals(), lake.noisy_tenants(), alerts, now, names)

    said = headline(cards, alerts, rules_ran=bool(transitions))
    if fresh is not None and fresh.level is Level.STALE:
        said = f"At {instant(fresh.as_of, now, seconds=True)}: {said}"
    st.html(markup.title(said))
    st.html(markup.note(frame.as_of_line(lake, fresh, now)))
    main, side = st.columns([2.3, 1], gap="large")
    with main:
        if alerts:
            st.html(markup.section("Alerts") + markup.alerts(alerts))
        picture = st.container(key="picture")
        troubled, st.session_state["places"] = steady(cards, st.session_state.get("places"), CARDS, monotonic())
        hours = _trouble(troubled)
    with side:
        _acting(lake, now)
        _happened(lake, transitions, now)
    table = _all(cards)
    # What is said is on the screen by now; history may take its time.
    with picture:
        chosen = pictured(troubled or cards, st.session_state.get("picture"), monotonic())
        st.session_state["picture"] = chosen
        drawn = next(card for card in cards if card.key == chosen.key)
        former = next((card for card in cards if card.key == st.session_state.get("pictured")), None)
        st.session_state["pictured"] = story.show(lake, drawn, former, transitions, now)
    before = st.session_state.get("trends")
    if (found := _recent(lake, cards[:LINES], health)) is not before:
        _fill(cards, troubled, hours, table, found)
    _foretell(lake, troubled, hours, health, now)


def _recent(lake: Repository, cards: Sequence[QueueCard], health: Sequence[Row]) -> dict[QueueKey, Trend]:
    shown = {card.key for card in cards}
    as_of = {key: row["as_of"] for row in health if (key := QueueKey.of(row)) in shown}
    span, target = last_hour(max(as_of.values())), lake.definitions.target_seconds

    def read(past: Repository) -> dict[QueueKey, Trend]:
        return trends(span, past.recent(list(as_of), span), as_of, target)

    try:
        found = lake.behind("trends", read) or {}
    except SojournError as error:
        log.warning("the last hour could not be read: %s", visible(str(error)))
        found = dict.fromkeys(as_of, Trend())
    st.session_state["trends"] = found
    return found


def _trouble(troubled: Sequence[QueueCard]) -> list[tuple[Any, Any]]:
    """The cards of queues in trouble; gives back the places for their last hour, and for what comes of them."""
    if not troubled:
        return []
    st.html(markup.section("Queues that need attention"))
    places = []
    for place, card in enumerate(troubled[:CARDS]):
        with st.container(border=True, key=f"card-{place}", gap="small"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _link(card)
                st.html(markup.verdict(card), width="content")
            st.html(markup.queue(card))
            places.append((st.empty(), st.empty()))
            places[-1][0].html(spark.card(_known(card)))
            places[-1][1].html(markup.aside(st.session_state.get("ahead", {}).get(card.key, "")))
    if len(troubled) > CARDS:
        st.html(markup.note(f"{len(troubled) - CARDS:,} more stand in the table below."))
    return places


def _all(cards: Sequence[QueueCard]) -> Any:
    """The table of all queues; gives back its place."""
    st.html(markup.section("All queues") + spark.legend())
    place = st.empty()
    place.html(markup.queues(cards[:LINES], _caption(cards), st.session_state.get("trends")))
    download.csv(
        "queues",
        ("Queue", "State", *COLUMNS),
        lambda: [(card.key.full, card.verdict.word, *card.cells) for card in cards],
        what="All queues as a file, as they stand here",
    )
    return place


def _caption(cards: Sequence[QueueCard]) -> str:
    more = f"the {LINES} most urgent of {len(cards):,}; the others are on the page “Queue”"
    return (
        f"The worst first{'' if len(cards) <= LINES else f', {more}'}. In → out: messages that arrive and leave. "
        "Coverage: events against the broker's own count. Sampled: how long before these data the broker was read."
    )


def _known(card: QueueCard) -> Trend | None:
    """The last hour as this session has it already: it stays on the screen until a newer one is read."""
    found: Trend | None = st.session_state.get("trends", {}).get(card.key)
    return found


def _fill(
    cards: Sequence[QueueCard],
    troubled: Sequence[QueueCard],
    hours: Sequence[tuple[Any, Any]],
    table: Any,
    found: Mapping[QueueKey, Trend],
) -> None:
    for (place, _), card in zip(hours, troubled, strict=False):
        place.html(spark.card(found.get(card.key)))
    table.html(markup.queues(cards[:LINES], _caption(cards), found))


def _foretell(
    lake: Repository,
    troubled: Sequence[QueueCard],
    hours: Sequence[tuple[Any, Any]],
    health: Sequence[Row],
    now: datetime,
) -> None:
    """Say on each card when it is drained, late, or overtaken by its retention."""
    rows = {QueueKey.of(row): row for row in health}
    target = lake.definitions.target_seconds
    said = {}
    for (_, place), card in zip(hours, troubled, strict=False):
        if card.flows:
            continue

        def work(past: Repository, row: Row = rows[card.key], ready: int | None = card.ready) -> Any:
            return past.foretell(row, ready)

        try:
            told = lake.behind(("ahead", card.key), work, repository.HEADING_SECONDS)
        except SojournError as error:  # one that no statement can name, and history that could not be read
            log.warning("nothing can be foretold of a queue: %s", visible(str(error)))
            continue
        if told is not None:
            said[card.key] = forecast.in_short(told, now, target)
            place.html(markup.aside(said[card.key]))
    st.session_state["ahead"] = said


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
    since = on_the_hour(now, timedelta(days=1))
    changed, done = ([row for row in rows if row["at"] >= since] for rows in (transitions, lake.actions()))
    recent = happenings(changed, done, now, limit=60)
    quiet = (
        ""
        if recent
        else "Nothing in the last day."
        if transitions
        else ("No alert rule has been evaluated on this lake yet: is `sojourn alert` running?")
    )
    st.html(markup.section("What happened"))
    st.html(markup.timeline(in_short(recent)) if recent else markup.note(quiet))
