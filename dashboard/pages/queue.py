"""One queue: who holds it, since when, and how it came to this. Bound to the address ``?queue=…&range=…``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import choose, details, download, frame, markup
from dashboard.pages.charts import CHART, age_lines, highest
from dashboard.repository import Repository
from dashboard.services import forecast, series, story, why
from dashboard.services.alerting import Happening, alert_cards, happenings, in_short
from dashboard.services.keys import QueueKey, Row, concerns, short_names
from dashboard.services.overview import Fact, queue_cards
from dashboard.services.queue import COLUMNS, tenant_lines
from dashboard.services.say import clock, count, percent
from dashboard.services.series import Curve, Span
from dashboard.theme import CALM, MUTED
from lake.errors import SojournError
from lake.foretell import Foretold
from lake.shares import Shares, newest_shares
from lake.why import Cause, Told

#: Tenants in the table; all others are one line.
TENANTS = 20
#: How often is looked what the broker's readings tell of tenants.
READ_SECONDS = 5.0
#: Pixels that are kept for the charts of history while it is read: three rows of them, with what is said of each.
_CHARTS = 3 * (figures.HEIGHT + 78)


def page() -> Any:
    """The page as the navigation knows it."""
    return st.Page(render, title="Queue", url_path="queue", icon=":material/stacked_line_chart:")


def render() -> None:
    """Show the page: its two selectors, and below them what lives."""
    frame.live(_body)


def _body(lake: Repository, health: list[Row], now: datetime) -> None:
    names = short_names(QueueKey.of(row) for row in health)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        chosen = choose.queue(names)
        stretch = choose.stretch()
    fresh = frame.age_of_data(lake, health, now)
    if chosen is None:
        return
    row = next(row for row in health if QueueKey.of(row) == chosen)
    total = next((row for row in lake.totals() if QueueKey.of(row) == chosen), None)
    noisy = [row for row in lake.noisy_tenants() if QueueKey.of(row) == chosen]
    transitions = lake.alert_transitions()
    alerts = [
        card
        for card in alert_cards(
            frame.as_said_now(lake, lake.alert_states()), transitions, list(names), now, frame.figures_of(lake)
        )
        if card.queue == chosen
    ]
    (card,) = queue_cards([row], [total] if total else [], noisy, alerts, now, names)
    st.html(markup.title(card.name))
    st.html(markup.verdict(card) + markup.queue(card))
    st.html(markup.note(frame.as_of_line(lake, fresh, now)))
    if alerts:
        st.html(markup.section("Alerts") + markup.alerts(alerts))
    because = st.container(key="why")
    found: tuple[Repository, _Past] | SojournError | None = None
    if total is not None:
        ready = total["ready"]

        def history(first_seconds: float | None = None) -> tuple[Repository, _Past] | SojournError | None:
            try:
                return lake.remembered(
                    ("queue", chosen, stretch), lambda past: _read(past, chosen, stretch, row, ready), first_seconds
                )
            except SojournError as error:
                return error

        found = history(0.0)
        if found is None and not card.flows:  # before anything below it is there
            because = because.empty()
            with because.container():
                _reserve()
    _tenants(lake, chosen, total, now, flows=card.flows, estimated=bool(row["estimated"]))
    about = [entry for entry in transitions if concerns(entry["labels"], chosen)]
    done = [entry for entry in lake.actions() if concerns(entry, chosen)]
    marks = happenings(about, done, now, limit=60)
    if total is not None:
        if found is None:
            found = history()
        if isinstance(found, SojournError):
            because.empty()  # nothing is being worked out any more
            st.html(markup.section("History", f"It could not be read: {found}."))
        elif found is None:  # its place is kept, so that nothing moves when it comes
            st.html(markup.section("History", "It is being read.") + markup.reserved(_CHARTS))
        else:
            past, told = found
            with because.container():
                _foretold(lake, told.foretold, now)
                _why(told.why, now.tzinfo or UTC)
            span = replace(told.span, zone=now.tzinfo or UTC)  # what was found is everybody's
            _charts(History(past, chosen, span, told.since, marks))
    else:
        _depth(lake, chosen, Span.ending(row["as_of"].astimezone(now.tzinfo), stretch), marks)
    st.html(markup.section("What happened"))
    known = not lake.unread.keys() & {"alert_transitions", "actions"}
    nothing = "No alert fired and nothing acted on this queue." if known else "Unknown."
    st.html(markup.timeline(in_short(marks, 15)) if marks else markup.note(nothing))


def _tenants(
    lake: Repository, key: QueueKey, total: Row | None, now: datetime, *, flows: bool, estimated: bool
) -> None:
    limits = [limit for limit in lake.limits() if concerns(limit, key)]
    lines = tenant_lines(lake.tenants(key, TENANTS), total, limits, top=TENANTS, flows=flows)
    if not lines:
        _read_tenants(lake, key, now)
        return
    caption = f"Noisy first, then by backlog; rates are means over the last {lake.definitions.window_seconds} s."
    if any("≈" in line.backlog for line in lines):
        caption += " ≈: what the broker's own count makes of it, as events cover only part of the queue."
    if estimated:
        caption += " Estimates: sampled traces stand for those that were not; a queue of few messages is off by chance."
    st.html(markup.section("Tenants") + markup.tenants(lines, caption))
    columns = ("Tenant", "Noisy", *COLUMNS)
    download.csv("queue", columns, lambda: [(one.tenant, "noisy" if one.noisy else "", *one.cells) for one in lines])


def _read_tenants(lake: Repository, key: QueueKey, now: datetime) -> None:
    """What the broker itself tells of tenants, where it does."""
    shares = _shares(str(lake.root), key.broker, key.queue, key.subscriber)
    if shares is None:
        st.html(markup.section("Tenants", "Unknown: no message event of this queue has been seen."))
        return
    read = clock(shares.sampled_at, now, seconds=True)
    more = len(shares.tenants) - TENANTS
    caption = f"By the broker's own count, read at {read}; who is noisy is told by message events alone."
    caption += f" {more:,} more are not shown." if more > 0 else ""
    st.html(markup.section("Tenants") + markup.read_tenants(shares.tenants[:TENANTS], caption))


@st.cache_resource(max_entries=16, ttl=READ_SECONDS, show_spinner=False)
def _shares(root: str, broker: str, queue: str, subscriber: str | None) -> Shares | None:
    return newest_shares(Path(root), broker, queue, subscriber, datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class History:
    """What every chart of a queue needs: where to ask, about what, and from when on anything is known."""

    lake: Repository
    key: QueueKey
    span: Span
    since: datetime
    marks: tuple[Happening, ...]


@dataclass(frozen=True, slots=True)
class _Past:
    """What is worked out behind the page, beside the rows of its charts."""

    span: Span
    since: datetime
    foretold: Foretold
    why: Told | None


def _read(past: Repository, key: QueueKey, stretch: str, row: Row, ready: int | None) -> _Past:
    """Ask for all that :func:`_charts` shows of history."""
    since, until = past.history_bounds(key)
    span = Span.ending(until, stretch)
    noisy = past.once_noisy(key, span)
    past.health_history(key, span)
    past.backlog_changes(key, span, series.TOP)
    past.first_attempt_cells(key, span, noisy)
    past.rate_changes(key, span)
    past.concurrency_changes(key, span)
    return _Past(span, since, past.foretell(row, ready), past.why(key))


def _reserve() -> None:
    """Keep the place of :func:`_foretold` and :func:`_why`, by what they mostly say."""
    wait = Fact("Drained", "…", "…")
    st.html(markup.section("What comes", "It is being worked out.") + markup.facts([wait]))
    causes = [(cause.value, "…", "…", "…") for cause in Cause if cause not in (Cause.PARTITION, Cause.THROTTLED)]
    rows = details.table(("Cause", "Wait", "What changed", "Behind it"), causes, "sj-parts")
    st.html(markup.section("Why it waits", "It is being worked out.") + rows)
    _fold()


def _why(told: Told | None, zone: tzinfo) -> None:
    """The rise of the wait in its parts; nothing where it has not risen, or nobody knows."""
    if told is None or told.rise is None or not told.rise.parts:
        return
    parts = details.parts(why.lines(told), why.notes(told))
    st.html(markup.section("Why it waits", why.headline(told, zone)) + parts)
    with _fold():
        st.code("\n".join(f"-- {name}{text}" for name, text in told.sql.items()), language="sql", wrap_lines=True)


def _fold() -> Any:
    return st.expander("The SQL behind it, and behind who sends more and what waits")


def _charts(past: History) -> None:
    noisy = past.lake.once_noisy(past.key, past.span)
    legend = " Marks on the time axis: ▲ an alert fires, ▽ it is resolved, ◆ an action." if past.marks else ""
    st.html(markup.section("History", f"{past.span.words}.{legend}"))
    states = past.lake.health_history(past.key, past.span)
    beside: tuple[tuple[Callable[[], None], Callable[[], None]], ...] = (
        (lambda: _backlog(past, noisy), lambda: _ages(past, noisy)),
        (lambda: _rates(past), lambda: _concurrency(past, states)),
        (lambda: _held(past, states), lambda: _polls(past, states)),
    )
    for pair in beside:  # in rows, so that what is beside one another begins at one height, however long its words are
        for column, chart in zip(st.columns(2, gap="large"), pair, strict=True):
            with column:
                chart()


def _backlog(past: History, noisy: list[str]) -> None:
    if past.lake.put_off() is not None:
        st.html(markup.section("Backlog by tenant", "Unknown until the events of before are read."))
        return
    changes = past.lake.backlog_changes(past.key, past.span, series.TOP)
    curves = series.levels(past.span, changes, "backlog", by="tenant", known_from=past.since)
    figure = figures.backlog(past.span, curves, noisy, past.marks)
    _chart("Backlog by tenant", story.backlog(curves, past.span, noisy), figure, past.key)


def _ages(past: History, noisy: list[str]) -> None:
    lake, key, span = past.lake, past.key, past.span
    drawn, p50, p99 = age_lines(lake, key, span, noisy)
    cells = series.cells(span, lake.first_attempt_cells(key, span, noisy))
    figure = figures.ages(span, cells, drawn, lake.definitions.target_seconds, past.marks)
    _chart("Age of first attempt, quiet and noisy tenants", story.ages(p50, p99), figure, key)


def _rates(past: History) -> None:
    changes = past.lake.rate_changes(past.key, past.span)
    arrivals = series.level(past.span, changes, "arrival_rate", past.since)
    leavers = series.level(past.span, changes, "completion_rate", past.since)
    drawn = _known((Line("arrive", CALM[0]), arrivals), (Line("leave", CALM[2], "dash"), leavers))
    figure = figures.lines(past.span, drawn, "messages/s", past.marks)
    _chart("Arrivals and departures", story.rates(arrivals, leavers), figure, past.key)


def _held(past: History, states: Sequence[Row]) -> None:
    """What the broker holds: ready, in flight, delayed."""
    lines = (
        ("ready", "depth", CALM[0], "solid"),
        ("in flight", "in_flight", CALM[1], "dot"),
        ("delayed", "delayed", CALM[3], "dash"),
    )
    drawn = _known(
        *(
            (Line(name, color, dash, step=True), series.last_values(past.span, states, column))
            for name, column, color, dash in lines
        )
    )
    if drawn:
        figure = figures.lines(past.span, drawn, "messages", past.marks)
        now = ", ".join(f"{count(curve.last)} {line.name}" for line, curve in drawn)
        _chart(
            "Ready, in flight, delayed",
            f"By the broker’s own counts, in flight by events where there are any: {now}.",
            figure,
            past.key,
        )


def _polls(past: History, states: Sequence[Row]) -> None:
    """How many of the consumers' polls bring nothing: what headroom they have."""
    curve = series.last_values(past.span, states, "empty_poll_ratio")
    if curve is None:
        return
    shown = Curve(curve.name, tuple(None if value is None else 100 * value for value in curve.values))
    said = f"{percent(curve.last)} of polls bring nothing now; none for long means no headroom."
    figure = figures.lines(past.span, [(Line("empty polls", CALM[2], step=True), shown)], "%", past.marks)
    _chart("Empty polls", said, figure, past.key)


def _foretold(lake: Repository, told: Foretold, now: datetime) -> None:
    if told.drained is None and told.breached is None and told.retention is None:
        return
    shown = markup.facts(forecast.facts(told, now, lake.definitions.target_seconds))
    st.html(markup.section("What comes", forecast.said(told)) + shown)


def _concurrency(past: History, states: Sequence[Row]) -> None:
    changes = past.lake.concurrency_changes(past.key, past.span)
    limit = series.last_values(past.span, states, "in_flight_limit")
    drawn = _known(
        (Line("Little's law", CALM[0]), series.level(past.span, changes, "littles_law", past.since)),
        (Line("measured in flight", CALM[1], "dot", step=True), series.last_values(past.span, states, "in_flight")),
    )
    if limit is not None and limit.last is not None and highest(drawn) > limit.last / 4:
        drawn.append((Line("limit", MUTED, "dash", 1.2, step=True), limit))  # far above, it would flatten the rest
    now = past.lake.concurrency(past.key) or {"littles_law": None, "in_flight": None}
    said = story.concurrency(now["littles_law"], now["in_flight"], limit.last if limit else None)
    _chart("Concurrency", said, figures.lines(past.span, drawn, "in flight", past.marks), past.key)


def _depth(lake: Repository, key: QueueKey, span: Span, marks: Sequence[Happening]) -> None:
    """The one history of a queue without events: what its broker counted."""
    depth = series.last_values(span, lake.health_history(key, span), "depth")
    if depth is None:
        return
    figure = figures.lines(span, [(Line("the broker's own count", CALM[1], step=True), depth)], "messages", marks)
    _chart("Broker's own count", f"{span.words}. {story.depth(depth)}", figure, key)


def _known(*curves: tuple[Line, Curve | None]) -> list[tuple[Line, Curve]]:
    return [(line, curve) for line, curve in curves if curve is not None]


def _chart(title: str, said: str, figure: Any, key: QueueKey) -> None:
    st.html(markup.section(title, said))
    st.plotly_chart(figure, config=CHART, key=f"{title} {key.full}", alt=f"{title}. {said}")
