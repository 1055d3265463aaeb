"""What rows tell of their brokers before any of them is taken in: clocks, levels, consumers, how far back they go."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lake.definitions import Definitions
from lake.follow import Change
from lake.remote import Location
from lake.snapshot import read_file
from spark_analytics.fold import lived
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.intake import RebuildRequired
from spark_analytics.fold.lived import Consumers, levels_of
from spark_analytics.fold.units import row_group, units, unix_micros

#: When the rows of each table are of.
_TIMES = {"partials": "bucket_start", "marks": "occurred_at", "queue_samples": "sampled_at"}
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
        for broker, reached in levels_of(rows).items():
            known = levels.get(broker, (-1, -1))
            levels[broker] = max(known[0], reached[0]), max(known[1], reached[1])
        sums = rows.select(_WHO).group_by(["broker", "queue", "subscriber"])
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


def oldest(changes: Mapping[str, list[Change]]) -> dict[str, int]:
    """By broker the first second of which the files of ``changes`` tell; nothing of tables that are wholly new."""
    found: dict[str, int] = {}
    for name, time in _TIMES.items():
        for change in changes[name]:
            for path in [] if change.anew or change.same_rows or change.removed else change.added:
                rows = read_file(path, ("broker", time)).group_by("broker").aggregate([(time, "min")])
                firsts = (rows.column(column).to_pylist() for column in ("broker", f"{time}_min"))
                for broker, first in zip(*firsts, strict=True):
                    second = unix_micros(first) // 1_000_000
                    found[broker] = min(second, found.get(broker, second))
    return found


def _later(clocks: dict[str, int], rows: pa.Table, time: str) -> None:
    """Move the clock of each broker to the newest ``time`` of its ``rows``."""
    newest = rows.group_by("broker").aggregate([(time, "max")])
    for broker, at in zip(*(newest.column(name).to_pylist() for name in ("broker", f"{time}_max")), strict=True):
        clocks[broker] = max(clocks.get(broker, -1), unix_micros(at))
