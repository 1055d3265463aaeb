"""The last hour of each queue as small pictures need it: a strip of minutes, and lines of backlog, flow and depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dashboard.services import series
from dashboard.services.keys import QueueKey, Row
from dashboard.services.say import UNKNOWN, count, decimal, duration, rate
from dashboard.services.series import Curve, Span
from lake.histogram import bucket_value

MINUTE = 60
#: From which multiple of the target on a minute is of which level; the levels' words are for the legend.
LEVELS = (0.0, 0.5, 1.0, 4.0)
LEVEL_WORDS = ("up to half the target", "up to the target", "beyond it", "beyond four times")


@dataclass(frozen=True, slots=True)
class Minute:
    """One cell of a strip; ``level`` is 0 (far within the target) to 3 (far beyond), None where nothing is known."""

    level: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Trend:
    """One queue's last hour. What nobody has seen is None; ``said`` tells the strip to those who cannot see it.

    Pictures are found by it at each renewal: its hash is of few of its values.
    """

    strip: tuple[Minute, ...] = ()
    said: str = ""
    backlog: Curve | None = None
    arrivals: Curve | None = None
    leavers: Curve | None = None
    depth: Curve | None = None

    def __hash__(self) -> int:
        return hash((self.said, self.backlog, self.depth))


@dataclass(frozen=True, slots=True)
class Recent:
    """What the lake tells of the last hour: rows by minute of many queues at once."""

    tails: Sequence[Row]  # broker, queue, subscriber, at, index (the p99's bucket), attempts
    backlogs: Sequence[Row]  # changes: at, backlog
    rates: Sequence[Row]  # changes: at, arrival_rate, completion_rate
    states: Sequence[Row]  # at, depth


def last_hour(as_of: datetime) -> Span:
    """The sixty minutes up to the newest data; the bin at its start holds what was before."""
    end = -(-int(as_of.timestamp()) // MINUTE) * MINUTE
    return Span(end - 3600, end, MINUTE, as_of.tzinfo or UTC)


def trends(span: Span, recent: Recent, as_of: Mapping[QueueKey, datetime], target: float) -> dict[QueueKey, Trend]:
    """The trend of each queue in ``as_of``, which says until when it is known; ``target`` is in seconds."""
    tails, backlogs, rates, states = map(_by_queue, (recent.tails, recent.backlogs, recent.rates, recent.states))
    return {
        key: _trend(span, tails[key], backlogs[key], rates[key], states[key], known, target)
        for key, known in as_of.items()
    }


def _trend(
    span: Span,
    tails: Sequence[Row],
    backlogs: Sequence[Row],
    rates: Sequence[Row],
    states: Sequence[Row],
    known: datetime,
    target: float,
) -> Trend:
    if not tails and not backlogs:
        return Trend(depth=until(span, series.last_values(span, states, "depth"), known))
    first = min((row["at"] for row in (*backlogs, *tails)), default=span.start)
    known_from = datetime.fromtimestamp(first, UTC)
    strip = tuple(_minute(span, second, tails, target) for second in span.seconds[1:])
    return Trend(
        strip=strip,
        said=_said(span, tails, target),
        backlog=until(span, series.level(span, backlogs, "backlog", known_from), known),
        arrivals=until(span, series.level(span, rates, "arrival_rate", known_from), known),
        leavers=until(span, series.level(span, rates, "completion_rate", known_from), known),
        depth=until(span, series.last_values(span, states, "depth"), known),
    )


def _minute(span: Span, second: int, tails: Sequence[Row], target: float) -> Minute:
    at = f"{datetime.fromtimestamp(second - span.step, UTC):%H:%M} UTC"
    row = next((row for row in tails if row["at"] == second), None)
    if row is None:
        return Minute(None, f"{at}: no first attempt was seen")
    p99 = bucket_value(row["index"])
    attempts = f"{count(row['attempts'])} first attempt{'' if row['attempts'] == 1 else 's'}"
    times = f"{decimal(p99 / target)} × the target of {duration(target)}"
    return Minute(level(p99, target), f"{at}: p99 {duration(p99)} of {attempts}, {times}")


def level(p99: float, target: float) -> int:
    """How far ``p99`` is from the target: 0 up to half of it, 1 up to it, 2 beyond, 3 beyond four times."""
    return max(place for place, multiple in enumerate(LEVELS) if place == 0 or p99 > multiple * target)


def _said(span: Span, tails: Sequence[Row], target: float) -> str:
    seen = [row for row in tails if span.start < row["at"] <= span.end]
    if not seen:
        return "No first attempt was seen in the last hour."
    worst = max(seen, key=lambda row: row["index"])
    late = sum(bucket_value(row["index"]) > target for row in seen)
    when = f"{datetime.fromtimestamp(worst['at'] - span.step, UTC):%H:%M} UTC"
    return (
        f"p99 of first-attempt age by the minute, last hour: beyond the target of {duration(target)} in {late} of "
        f"{len(seen)} minutes; worst {duration(bucket_value(worst['index']))} at {when}."
    )


def flow_words(trend: Trend) -> str:
    """``now 20/s in, 12/s out``, for a line of both."""
    arrivals, leavers = trend.arrivals, trend.leavers
    if arrivals is None or leavers is None:
        return f"in and out: {UNKNOWN}"
    return f"last hour: in at most {rate(_most(arrivals))}, out at most {rate(_most(leavers))}"


def level_words(curve: Curve, what: str) -> str:
    """``Backlog, last hour: 12 at first, at most 1,240, 900 at last``."""
    known = [value for value in curve.values if value is not None]
    if not known:
        return f"{what}: {UNKNOWN}"
    return f"{what}, last hour: {count(known[0])} at first, at most {count(max(known))}, {count(known[-1])} at last"


def _most(curve: Curve) -> float | None:
    return max((value for value in curve.values if value is not None), default=None)


def until(span: Span, curve: Curve | None, known: datetime) -> Curve | None:
    """``curve`` without what would only be its last value drawn on, past what is known."""
    if curve is None:
        return None
    last = known.timestamp() + span.step
    return Curve(
        curve.name,
        tuple(value if second < last else None for second, value in zip(span.seconds, curve.values, strict=True)),
    )


def _by_queue(rows: Iterable[Row]) -> dict[QueueKey, list[Row]]:
    found: dict[QueueKey, list[Row]] = defaultdict(list)
    for row in rows:
        found[QueueKey.of(row)].append(row)
    return found
