"""The large picture of one queue on the overview: when it began, who it was, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from dashboard import figures
from dashboard.figures import Line
from dashboard.pages import markup
from dashboard.pages.charts import CHART, Drawn, Spots, age_lines, highest, pending, reference
from dashboard.repository import Repository
from dashboard.services import series
from dashboard.services import story as words
from dashboard.services.alerting import happenings
from dashboard.services.keys import QueueKey, Row, concerns
from dashboard.services.overview import QueueCard
from dashboard.services.series import Curve, Span
from dashboard.theme import CALM
from lake.errors import SojournError

#: The longest range that is drawn here; the queue's own page has longer ones.
LONGEST = "1 h"


@dataclass(frozen=True, slots=True)
class _Past:
    """What the picture shows of one queue: the broker's own count alone where no event was ``seen``."""

    span: Span
    seen: bool
    noisy: Sequence[str] = ()
    curves: tuple[Curve, ...] = ()
    ages: Drawn = field(default_factory=list)
    p50: tuple[Curve, ...] = ()
    p99: tuple[Curve, ...] = ()
    depth: Curve | None = None


def show(
    lake: Repository,
    card: QueueCard,
    former: QueueCard | None,
    transitions: Sequence[Row],
    now: datetime,
    spots: Spots,
    *,
    patient: bool = False,
) -> QueueKey:
    """Draw the queue of ``card`` at ``spots``: backlog by tenant and age of first attempt, else the broker's own count.

    While its history is not read yet, the ``former`` one stays; for as long as the pace of history wants where it is
    ``patient``, being no worse. Gives back whose queue is drawn.
    """
    try:
        found = _asked(lake, card, None if former is None else 0.0, patient=patient and former is not None)
        if found is None and former is not None:
            card, found = former, _asked(lake, former, 0.0)
    except SojournError as error:  # the rest of the page does not need it
        reserve(card, spots, f"Its history could not be read: {error}")
        return card.key
    if found is None:  # its place is kept, so that nothing moves when it comes
        reserve(card, spots)
    else:
        _draw(lake, card, found, transitions, now, spots)
    return card.key


def reserve(card: QueueCard, spots: Spots, why: str = "Its history is being read.") -> None:
    """Keep the place of a picture."""
    pending(_title(card), why, figures.STORY_HEIGHT, spots)


def _title(card: QueueCard) -> str:
    return f"{card.name}: how it came to this"


def _seen(lake: Repository, key: QueueKey) -> bool:
    """Whether an event of it was seen."""
    return any(QueueKey.of(row) == key for row in lake.totals())


def _asked(lake: Repository, card: QueueCard, first_seconds: float | None, *, patient: bool = False) -> _Past | None:
    seen = _seen(lake, card.key)
    question = "story", card.key, seen
    return lake.behind(question, lambda past: _read(past, card.key, seen=seen), first_seconds, patient=patient)


def _begun(found: _Past) -> _Past:
    """From where something is known, and a third of the range at least: what was before has nothing to show."""
    bins = len(found.span.seconds)
    unknown = min((series.unknown_at_first(curve) for curve in found.curves), default=0)
    if not (cut := min(unknown, bins - 1 - bins // 3)):
        return found

    def later(curve: Curve) -> Curve:
        return replace(curve, values=curve.values[cut:])

    return replace(
        found,
        span=replace(found.span, start=found.span.seconds[cut]),
        curves=tuple(map(later, found.curves)),
        ages=[(line, later(curve)) for line, curve in found.ages],
        p50=tuple(map(later, found.p50)),
        p99=tuple(map(later, found.p99)),
    )


def _draw(
    lake: Repository, card: QueueCard, found: _Past, transitions: Sequence[Row], now: datetime, spots: Spots
) -> None:
    title = _title(card)
    span = replace(found.span, zone=now.tzinfo or UTC)  # what was found is everybody's
    about = [entry for entry in transitions if concerns(entry["labels"], card.key)]
    done = [entry for entry in lake.actions() if concerns(entry, card.key)]
    marks = happenings(about, done, now, limit=60)
    legend = " ▲ an alert fires, ▽ it is resolved, ◆ an action." if any(span.holds(mark.at) for mark in marks) else ""
    if not found.seen:
        if found.depth is None:
            for spot in spots:
                spot.empty()
            return
        line = (Line("the broker's own count", CALM[1], step=True), found.depth)
        figure, said = figures.lines(span, [line], "messages", marks), words.depth(found.depth)
    else:
        target = reference(lake, highest(found.ages))
        figure = figures.story(span, found.curves, found.noisy, found.ages, target, marks)
        said = f"{words.backlog(found.curves, span, found.noisy)} {words.ages(found.p50, found.p99)}"
    spots[0].html(markup.section(title, f"{span.words}. {said}{legend}"))
    spots[1].plotly_chart(figure, config=CHART, key=f"story {card.key.full}", alt=f"{title}. {said}")


def _read(past: Repository, key: QueueKey, *, seen: bool) -> _Past:
    since, until = past.history_bounds(key)
    span = Span.ending(until, _range((until - since).total_seconds()) if seen else LONGEST)
    if not seen:
        return _Past(span, seen, depth=series.last_values(span, past.health_history(key, span), "depth"))
    noisy = past.once_noisy(key, span)
    curves = series.levels(span, past.backlog_changes(key, span, series.TOP), "backlog", by="tenant", known_from=since)
    return _begun(_Past(span, seen, noisy, curves, *age_lines(past, key, span, noisy)))


def _range(seconds: float) -> str:
    """The shortest range that holds what is known, up to an hour."""
    return next((name for name, (length, _) in series.RANGES.items() if length >= seconds or name == LONGEST), LONGEST)
