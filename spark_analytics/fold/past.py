"""A past folded at once: files of marks and partials, a row group at a time, into folds that have nothing yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from lake.remote import Location
from lake.snapshot import read_file
from spark_analytics.fold import lived
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.lived import by_broker
from spark_analytics.fold.pauses import COLUMNS as MARK_COLUMNS
from spark_analytics.fold.pauses import Pauses, marks_of
from spark_analytics.fold.units import row_group, units


def fold_past(
    marks: list[Location],
    partials: list[Location],
    folds: Mapping[str, Fold],
    pauses: Mapping[str, Pauses],
    advance: Callable[[str, Fold, int], None],
    *,
    chosen: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    seen: Callable[[Location, pa.Table], None] = lambda path, rows: None,
) -> None:
    """Fold what the files tell, samples being in already, up to the data time of each broker.

    ``advance`` takes a broker's fold up to a second. ``chosen`` are the rows that the folds are to have, ``seen`` is
    given all rows of partials as they are read. Raises LakeError.
    """
    for path in marks:
        for broker, its in marks_of(chosen(read_file(path, MARK_COLUMNS))):
            if broker in folds:
                folds[broker].add_pauses(pauses[broker].add(its))
    ordered = sorted(units(partials), key=lambda unit: unit[2])
    for place, (path, group, _) in enumerate(ordered):
        for rows in row_group(path, group, lived.COLUMNS):
            seen(path, rows)
            for broker, mine in by_broker(chosen(rows)):
                folds[broker].add(lived.read(mine))
        if place + 1 < len(ordered):
            for broker, fold in folds.items():
                advance(broker, fold, min(fold.now_second, ordered[place + 1][2] - 1))
    for broker, fold in folds.items():
        advance(broker, fold, fold.now_second)
