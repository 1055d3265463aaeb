"""Curves over time: the repository sends changes in bins, these functions add them up and fill every gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import accumulate

from dashboard.services.keys import Row
from lake.histogram import BASE, BUCKETS_PER_OCTAVE, bucket_index, quantile

#: The ranges on offer, and the seconds of one bin: a chart has at most some 360 points a curve.
RANGES: dict[str, tuple[int, int]] = {
    "5 min": (300, 1),
    "15 min": (900, 5),
    "1 h": (3_600, 15),
    "6 h": (21_600, 60),
    "24 h": (86_400, 300),
}
DEFAULT_RANGE = "15 min"
#: Tenants that get a curve of their own; all the rest together are ``other``.
TOP = 7
OTHER = "other tenants"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of data time in bins of whole seconds, by the unix second at which each bin ends."""

    start: int
    end: int
    step: int
    zone: tzinfo = UTC  # in which people read it

    @classmethod
    def ending(cls, as_of: datetime, name: str) -> Span:
        """The range ``name`` up to the newest data, read in their time zone."""
        seconds, step = RANGES.get(name, RANGES[DEFAULT_RANGE])
        end = -(-int(as_of.timestamp()) // step) * step
        return cls(end - seconds, end, step, as_of.tzinfo or UTC)

    @property
    def seconds(self) -> list[int]:
        """The unix second of each bin's end."""
        return list(range(self.start, self.end + 1, self.step))

    @property
    def instants(self) -> list[datetime]:
        """The same, as instants."""
        return [datetime.fromtimestamp(second, self.zone) for second in self.seconds]

    def holds(self, at: datetime) -> bool:
        """Whether ``at`` is inside."""
        return self.start <= at.timestamp() <= self.end + self.step

    @property
    def words(self) -> str:
        """The range from and to."""
        begin, until = self.instants[0], self.instants[-1]
        return f"{begin:%d %b %H:%M:%S} to {until:%H:%M:%S} {until.tzname()}"

    def ago(self, seconds: float) -> datetime:
        """An instant ``seconds`` before the end."""
        return datetime.fromtimestamp(self.end, UTC) - timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Curve:
    """One named line: a value, or None where nothing is known, for each bin of its span."""

    name: str
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self.values[-1] if self.values else None


def unknown_at_first(curve: Curve) -> int:
    """In how many bins at its start nothing is known of a curve."""
    return next((place for place, value in enumerate(curve.values) if value is not None), len(curve.values))


def on_the_hour(now: datetime, span: timedelta) -> datetime:
    """``span`` ago, on the whole hour: a question since then stays the same for an hour, and is asked once."""
    return (now - span).astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def on_the_minute(at: datetime) -> datetime:
    """``at`` without its seconds: a question up to then stays the same for a minute."""
    return at.replace(second=0, microsecond=0)


def levels(
    span: Span, changes: Iterable[Row], column: str, *, by: str | None = None, known_from: datetime | None = None
) -> tuple[Curve, ...]:
    """Levels from their changes: each row adds ``row[column]`` to curve ``row[by]`` from bin ``row["at"]`` on.

    Changes before the span count from its start; before ``known_from`` nothing is known, which is not zero.
    The largest curve comes first, ``other tenants`` last.
    """
    seconds = span.seconds
    steps: dict[str, list[float]] = {}
    for row in changes:
        name = (row[by] if by else column) or OTHER
        steps.setdefault(name, [0.0] * len(seconds))[_bin(span, row["at"])] += row[column] or 0.0
    unknown = 0 if known_from is None else sum(second < int(known_from.timestamp()) for second in seconds)
    curves = [Curve(name, _running(changes_of, unknown)) for name, changes_of in steps.items()]
    return tuple(sorted(curves, key=lambda curve: (curve.name == OTHER, -sum(v or 0.0 for v in curve.values))))


def quantiles(span: Span, cells: Iterable[Row], q: float, *, by: str) -> tuple[Curve, ...]:
    """The ``q``-quantile for each bin and group: histogram cells (at, group, index, count) merged exactly."""
    merged: dict[str, dict[int, dict[int, int]]] = {}
    for row in cells:
        if not span.start < row["at"] <= span.end + span.step:
            continue
        bins = merged.setdefault(row[by], {})
        histogram = bins.setdefault(_bin(span, row["at"]), {})
        histogram[row["index"]] = histogram.get(row["index"], 0) + row["count"]
    width = len(span.seconds)
    return tuple(
        Curve(name, tuple(quantile(bins.get(place, {}), q) for place in range(width)))
        for name, bins in sorted(merged.items())
    )


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts in cells of a map: ``counts[row][bin]``, where row ``i`` holds values from ``edges[i]`` to the next."""

    edges: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]


#: Rows of a map for each doubling.
_ROWS_AN_OCTAVE = 2


def cells(span: Span, rows: Iterable[Row]) -> Cells | None:
    """How many values were in which range in each bin of ``span`` but the first; rows have at, index, count."""
    merge = BUCKETS_PER_OCTAVE // _ROWS_AN_OCTAVE
    found: dict[tuple[int, int], int] = {}
    for row in rows:
        if span.start < row["at"] <= span.end + span.step:
            place = max(row["index"], bucket_index(0.001)) // merge, _bin(span, row["at"])
            found[place] = found.get(place, 0) + row["count"]
    if not found:
        return None
    lowest, highest = min(row for row, _ in found), max(row for row, _ in found)
    edges = tuple(BASE ** (row * merge) for row in range(lowest, highest + 2))
    bins = range(1, (span.end - span.start) // span.step + 1)
    return Cells(edges, tuple(tuple(found.get((row, at), 0) for at in bins) for row in range(lowest, highest + 1)))


def last_values(span: Span, samples: Iterable[Row], column: str) -> Curve | None:
    """The newest ``column`` at or before each bin (a limit, a depth); None where it was never known."""
    known = sorted((row["at"], row[column]) for row in samples if row[column] is not None)
    if not known:
        return None
    values: list[float | None] = []
    place = 0
    newest: float | None = None
    for second in span.seconds:
        while place < len(known) and known[place][0] <= second:
            newest = known[place][1]
            place += 1
        values.append(newest)
    return Curve(column, tuple(values))


def level(span: Span, changes: Iterable[Row], column: str, known_from: datetime | None = None) -> Curve | None:
    """The one level whose changes ``row[column]`` are; None where nothing ever changed."""
    return next(iter(levels(span, changes, column, known_from=known_from)), None)


def named(curves: Sequence[Curve], name: str) -> Curve | None:
    """The curve called ``name``."""
    return next((curve for curve in curves if curve.name == name), None)


def _bin(span: Span, second: int) -> int:
    place = -(-(second - span.start) // span.step)
    return min(max(place, 0), (span.end - span.start) // span.step)


def _running(changes: Sequence[float], unknown: int) -> tuple[float | None, ...]:
    sums = accumulate(changes)
    return tuple(None if place < unknown else max(0.0, round(total, 6)) for place, total in enumerate(sums))
