"""Consumers: headroom, work, retries, leaks, prefetch. Bound to the address ``?find=…&round=…&page=…``."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from dashboard.pages import choose, download, frame, lists, markup
from dashboard.questions import consumers as questions
from dashboard.repository import Repository
from dashboard.services import consumers, series
from dashboard.services.alerting import alert_cards
from dashboard.services.keys import QueueKey, Row, short_names
from dashboard.services.series import Curve, Span
from dashboard.services.trends import last_hour, until
from lake.errors import SojournError
from lake.visible import visible

log = logging.getLogger(__name__)
#: Consumers on one page.
ROWS = 25
#: Round trips on offer, in milliseconds: the same rack, the same region, across an ocean.
_ROUND_TRIPS = {"1": "1 ms", "5": "5 ms", "20": "20 ms", "100": "100 ms"}


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Consumers", url_path="consumers", icon=":material/precision_manufacturing:")


def render() -> None:
    """Show the page."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    names = short_names(QueueKey.of(row) for row in health)
    top = st.container(gap="small")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        find = choose.text("Queue or consumer", "find")
        network = choose.one_of("Network round trip, for the prefetch advice", _ROUND_TRIPS, "round")
    states, transitions = frame.as_said_now(lake, lake.alert_states()), lake.alert_transitions()
    found = consumers.judged(alert_cards(states, transitions, list(names), now), states)
    (total,) = lake.now(questions.counted(find))
    with top:
        fresh = frame.age_of_data(lake, health, now)
        said = consumers.headline(found, names, total["consumers"], ran=frame.rules_ran(lake))
        frame.headed(said, lake, fresh, now)
    place = choose.page_of(total["consumers"], ROWS)
    rows = lake.now(questions.ranked(find, list(found), ROWS, place))
    if not rows:
        st.html(markup.note("No queue’s or consumer’s name holds these letters." if find else "Nothing consumes here."))
        return
    shown = consumers.consumer_rows(rows, found, int(network) / 1000)
    caption = (
        f"{total['consumers']:,} consumer{'' if total['consumers'] == 1 else 's'}, "
        "those that a rule finds fault with first, then who uses most of its limit. "
        "At work: by Little’s law, start rate × processing time; in flight: measured. Empty polls: 0 % for long is no "
        "headroom. Prefetch: (round trip + processing) ÷ processing."
    )
    st.html(markup.note(caption))
    table = st.empty()
    table.html(lists.consumers(shown, names, st.session_state.get("work", {}), judged=bool(transitions)))
    download.csv(
        "consumers",
        ("Queue", "Faults", *consumers.COLUMNS),
        lambda: [(one.key.full, ", ".join(card.title for card in one.judged), *one.cells) for one in shown],
    )
    hours = _hours(lake, (find, place), health, [row.key for row in shown])
    st.session_state["work"] = hours
    table.html(lists.consumers(shown, names, hours, judged=bool(transitions)))


def _hours(lake: Repository, of: Hashable, health: list[Row], keys: list[QueueKey]) -> Mapping[QueueKey, Curve]:
    """What each of ``keys`` had at work in the last hour, as far as they stood in the table, the page ``of`` which it
    is, when it was read."""
    as_of = {QueueKey.of(row): row["as_of"] for row in health}

    def read(past: Repository) -> tuple[Span, list[Row]]:
        span = last_hour(max(as_of[key] for key in keys))
        return span, past.past(questions.work(keys, span, lake.definitions.window_seconds))

    try:
        found = lake.behind(("work", of), read)
    except SojournError as error:  # the table does not need it
        log.warning("the last hour could not be read: %s", visible(str(error)))
        found = None
    if found is None:
        return {}
    span, rows_of_all = found
    changes: dict[QueueKey, list[Row]] = {}
    for row in rows_of_all:
        changes.setdefault(QueueKey.of(row), []).append(row)
    curves = {
        key: until(span, series.level(span, rows, "littles_law", known_from=_first(rows)), as_of[key])
        for key, rows in changes.items()
        if key in as_of
    }
    return {key: curve for key, curve in curves.items() if curve is not None}


def _first(changes: list[Row]) -> datetime:
    """When the first of ``changes`` was: nothing is known of before."""
    return datetime.fromtimestamp(min(row["at"] for row in changes), UTC)
