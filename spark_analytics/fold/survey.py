"""What rows tell of their brokers before any of them is taken in: clocks, levels, consumers, how far back they go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from lake.definitions import Definitions
from lake.remote import Location
from spark_analytics.fold import lived
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.intake import RebuildRequired
from spark_analytics.fold.lived import Consumers, levels_of, raise_levels
from spark_analytics.fold.units import row_group, units, unix_micros

#: When the rows of each table are of.
_TIMES = {"partials": "bucket_start", "marks": "occurred_at", "queue_samples": "sampled_at"}
#: The tables that are folded, in this order: a batch's marks are committed before its partials.
FED = tuple(_TIMES)
_WHO = ("broker", "queue", "subscriber", *lived.COUNTED)
_COLUMNS = (*lived.LEVELS, "newest_occurred_at", *_WHO[1:])


def surveyed(files: list[Location], samples: list[pa.Table], definitions: Definitions) -> dict[str, Fold]:
    """Empty folds for all brokers of which the partials in ``files``, or ``samples``, tell, with their clocks, levels
    and consumers."""
    clocks: dict[str, int] = {}
    levels: dict[str, tuple[int, int]] = {}
    seen: dict[str, Consumers] = {}
    for rows in (rows for path, group, _ in units(files) for rows in row_group(path, group, _COLUMNS)):
        _later(clocks, rows, "newest_occurred_at")
        raise_levels(levels, levels_of(rows))
        sums = rows.select(_WHO).group_by(["broker", "queue", "subscriber"], use_threads=False)
        for row in sums.aggregate([(name, "sum") for name in lived.COUNTED]).to_pylist():
            consumes = any(row[f"{name}_sum"] > 0 for name in lived.COUNTED)
            seen.setdefault(row["broker"], Consumers()).note(row["queue"], row["subscriber"], consumes)
    sampled: dict[str, int] = {}
    for rows in samples:
        _later(sampled, rows, "sampled_at")
    folds = {}
    for broker in {**sampled, **clocks}:
        fold = folds[broker] = Fold(
            definitions.window_seconds, definitions.target_seconds, seen.get(broker, Consumers())
        )
        fold.minutes_until, fold.hours_until = levels.get(broker, (-1, -1))
        fold.as_of_us = clocks.get(broker, sampled.get(broker, -1))
    return folds


def reached_by(came: list[pa.Table], samples: list[pa.Table], folds: Mapping[str, Fold]) -> dict[str, int]:
    """The data time, in µs, of each broker of which partials ``came``, or ``samples``, to ``folds``.

    Raises RebuildRequired.
    """
    events: dict[str, int] = {}
    sampled: dict[str, int] = {}
    for rows in came:
        _later(events, rows, "newest_occurred_at")
    for rows in samples:
        _later(sampled, rows, "sampled_at")
    reached = {}
    for broker in {**events, **sampled}:
        known = folds.get(broker)
        tells = known is not None and bool(known.state.names)
        if broker in events and known is not None and not tells:
            raise RebuildRequired(f"the first events of {broker} came: until now samples were its clock")
        before = known.as_of_us if known is not None else -1
        newest = events.get(broker, before if tells else sampled.get(broker, -1))
        reached[broker] = max(newest, before)
    return reached


def oldest(came: Mapping[str, Iterable[pa.Table]]) -> dict[str, int]:
    """By broker the first second of which rows tell that ``came`` to the tables."""
    found: dict[str, int] = {}
    for name, tables in came.items():
        for rows in tables:
            for broker, micros in _extreme(rows, _TIMES[name], "min"):
                second = micros // 1_000_000
                found[broker] = min(second, found.get(broker, second))
    return found


def _later(clocks: dict[str, int], rows: pa.Table, time: str) -> None:
    """Move the clock of each broker to the newest ``time`` of its ``rows``."""
    for broker, micros in _extreme(rows, time, "max"):
        clocks[broker] = max(clocks.get(broker, -1), micros)


def _extreme(rows: pa.Table, time: str, which: str) -> Iterator[tuple[str, int]]:
    """Of each broker the least or the most of ``time``, in µs, in its ``rows``."""
    told = rows.group_by("broker", use_threads=False).aggregate([(time, which)])
    times = map(unix_micros, told.column(f"{time}_{which}").to_pylist())
    return zip(told.column("broker").to_pylist(), times, strict=True)
