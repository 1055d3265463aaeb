"""The overview: what is wrong, who, is it draining, what acts now; one glance at 03:00."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import streamlit as st

from dashboard import repository
from dashboard.pages import download, frame, markup, queue, spark, story
from dashboard.repository import Repository
from dashboard.services import forecast
from dashboard.services.alerting import AlertCard, alert_cards, happenings, in_short, limit_cards
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.overview import COLUMNS, QueueCard, headline, queue_cards
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
    glance = lake.once("overview", now, lambda: _glance(lake, health, names, now))
    alerts, cards = glance.alerts, glance.cards

    said = headline(cards, alerts, rules_ran=frame.rules_ran(lake))
    frame.headed(said, lake, fresh, now)
    main, side = st.columns([2.3, 1], gap="large")
    with main:
        if alerts:
            st.html(glance.warned)
        opened = "pictured" not in st.session_state  # the picture is asked for before anything else of history
        picture = st.container(key="picture")
        troubled, st.session_state["places"] = steady(cards, st.session_state.get("places"), CARDS, monotonic())
        chosen = pictured(troubled or cards, st.session_state.get("picture"), monotonic())
        st.session_state["picture"] = chosen
        drawn = next(card for card in cards if card.key == chosen.key)
        spots = (picture.empty(), picture.empty()) if opened else (picture, picture)
        if opened:  # before anything below it is there
            story.reserve(drawn, spots)
        ahead = None if opened else _foretell(lake, cards[:LINES], health, now, 0.0)
        found = None if opened else _recent(lake, cards[:LINES], health, 0.0)
        places = _trouble(lake, troubled, found, ahead, now)
    with side:
        st.html(glance.acting)
        st.html(glance.happened)
    table = _all(lake, cards, found, now)
    # What is said is on the screen by now; history that was never read may take its time.
    was = st.session_state.get("pictured")
    former = None if was is None else next((card for card in cards if card.key == was.key), None)
    no_worse = was is not None and chosen.verdict >= was.verdict
    shown = story.show(lake, drawn, former, lake.alert_transitions(), now, spots, patient=no_worse)
    st.session_state["pictured"] = chosen if shown == chosen.key else was
    late = found is None or ahead is None
    if found is None:
        found = _recent(lake, cards[:LINES], health)
        if found is not None:
            table.html(_table(lake, cards, found, now))
    if ahead is None:
        ahead = _foretell(lake, cards[:LINES], health, now, repository.HEADING_SECONDS)
    if late:
        for place, card in zip(places, troubled, strict=False):
            place.html(_card(lake, card, found, ahead, now))


def _recent(
    lake: Repository, cards: Sequence[QueueCard], health: Sequence[Row], first_seconds: float | None = None
) -> Mapping[QueueKey, Trend] | None:
    """The last hour of each queue; None where nobody has read it yet."""
    shown = {card.key for card in cards}
    as_of = {key: row["as_of"] for row in health if (key := QueueKey.of(row)) in shown}
    span, target = last_hour(max(as_of.values())), lake.definitions.target_seconds

    def read(past: Repository) -> dict[QueueKey, Trend]:
        return trends(span, past.recent(list(as_of), span), as_of, target)

    try:
        return lake.behind("trends", read, first_seconds)
    except SojournError as error:
        log.warning("the last hour could not be read: %s", visible(str(error)))
        return dict.fromkeys(as_of, Trend())


@dataclass(frozen=True, slots=True)
class _Glance:
    """What the page says of one reading to whoever looks: ``warned``, ``acting`` and ``happened`` are HTML."""

    alerts: tuple[AlertCard, ...]
    cards: tuple[QueueCard, ...]
    warned: str
    acting: str
    happened: str


def _glance(lake: Repository, health: list[Row], names: Mapping[QueueKey, str], now: datetime) -> _Glance:
    transitions = lake.alert_transitions()
    alerts = alert_cards(
        frame.as_said_now(lake, lake.alert_states()), transitions, list(names), now, frame.figures_of(lake)
    )
    return _Glance(
        alerts,
        queue_cards(health, lake.totals(), lake.noisy_tenants(), alerts, now, names),
        markup.section("Alerts") + markup.alerts(alerts),
        _acting(lake, now),
        _happened(lake, transitions, now),
    )


def _trouble(
    lake: Repository,
    troubled: Sequence[QueueCard],
    found: Mapping[QueueKey, Trend] | None,
    ahead: Mapping[QueueKey, str] | None,
    now: datetime,
) -> list[Any]:
    """The cards of queues in trouble; gives back the places of what stands in them, below their names."""
    if not troubled:
        return []
    st.html(markup.section("Queues that need attention"))
    places = []
    for place, card in enumerate(troubled[:CARDS]):
        with st.container(border=True, key=f"card-{place}", gap="small"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _link(card)
                st.html(markup.verdict(card), width="content")
            places.append(st.html(_card(lake, card, found, ahead, now)))
    if len(troubled) > CARDS:
        st.html(markup.note(f"{len(troubled) - CARDS:,} more stand in the table below."))
    return places


def _card(
    lake: Repository,
    card: QueueCard,
    found: Mapping[QueueKey, Trend] | None,
    ahead: Mapping[QueueKey, str] | None,
    now: datetime,
) -> str:
    """What a queue's card says, with its last hour and what comes of it."""
    said = lake.once(("card", card.key), now, lambda: markup.queue(card))
    return said + spark.card((found or {}).get(card.key)) + markup.aside((ahead or {}).get(card.key, ""))


def _all(lake: Repository, cards: Sequence[QueueCard], found: Mapping[QueueKey, Trend] | None, now: datetime) -> Any:
    """The table of all queues; gives back its place."""
    st.html(markup.section("All queues") + spark.legend())
    place = st.html(_table(lake, cards, found, now))
    download.csv(
        "queues",
        ("Queue", "State", *COLUMNS),
        lambda: [(card.key.full, card.verdict.word, *card.cells) for card in cards],
        what="All queues as a file, as they stand here",
    )
    return place


def _table(lake: Repository, cards: Sequence[QueueCard], found: Mapping[QueueKey, Trend] | None, now: datetime) -> str:
    """The most urgent queues, with their last hour as it was ``found``."""
    # What was found stays with what was made of it: nothing else can have its identity as long as that is kept.
    made = lake.once(("table", id(found)), now, lambda: (markup.queues(cards[:LINES], _caption(cards), found), found))
    return made[0]


def _caption(cards: Sequence[QueueCard]) -> str:
    more = f"the {LINES} most urgent of {len(cards):,}; the others are on the page “Queue”"
    return (
        f"The worst first{'' if len(cards) <= LINES else f', {more}'}. In → out: messages that arrive and leave. "
        "Coverage: events against the broker's own count. Sampled: how long before these data the broker was read."
    )


def _foretell(
    lake: Repository, cards: Sequence[QueueCard], health: Sequence[Row], now: datetime, first_seconds: float
) -> Mapping[QueueKey, str] | None:
    """What is said on each card of when it is drained, late, or overtaken by its retention; None where nobody has read
    it yet."""
    rows = {QueueKey.of(row): row for row in health}
    target = lake.definitions.target_seconds
    asked = [(rows[card.key], card.ready) for card in cards if not card.flows]
    try:
        told = lake.behind("ahead", lambda past: past.foretell_all(asked), first_seconds)
    except SojournError as error:  # history that could not be read
        log.warning("nothing can be foretold: %s", visible(str(error)))
        return {}
    if told is None:
        return None
    passing = {card.key for card in cards if card.flows}
    return {key: forecast.in_short(one, now, target) for key, one in told.items() if key not in passing}


def _link(card: QueueCard) -> None:
    st.page_link(
        queue.page(),
        label=f"**{markup.plain(card.name)}**",
        icon=":material/arrow_forward:",
        icon_position="right",
        query_params={"queue": card.name},
        help=f"Tenants and history of {markup.plain(card.key.full)}",
    )


def _acting(lake: Repository, now: datetime) -> str:
    cards = limit_cards(lake.limits(), now)
    nothing = "Unknown." if "actions" in lake.unread else "No limit is in force."
    head = markup.section("Acting now", "" if cards else nothing)
    return head + (markup.limits(cards) if cards else "")


def _happened(lake: Repository, transitions: list[Row], now: datetime) -> str:
    since = on_the_hour(now, timedelta(days=1))
    changed, done = ([row for row in rows if row["at"] >= since] for rows in (transitions, lake.actions()))
    recent = happenings(changed, done, now, limit=60)
    quiet = (
        ""
        if recent
        else "Unknown."
        if lake.unread.keys() & {"alert_transitions", "actions"}
        else "Nothing in the last day."
        if transitions
        else ("No alert rule has been evaluated on this lake yet: is `sojourn alert` running?")
    )
    return markup.section("What happened") + (markup.timeline(in_short(recent)) if recent else markup.note(quiet))
