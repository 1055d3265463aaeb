"""Finished state gets coarser with age: a row a key and second, then one a minute, then one an hour.

Each keeps the newest row that its key had in it. The epoch that is being written is left alone: readers follow it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.store import Lake
from lake.tables import TIMESTAMP
from spark_analytics.maintenance.merging import MANY_FILES, SMALL_BYTES, add_actions
from spark_analytics.maintenance.region import Region, Value, replace
from spark_analytics.maintenance.retention import DAY, HOUR, MINUTE, Retention

_NAMES = ("broker", "queue", "subscriber", "tenant", "kind")
_MICROS = 1_000_000


def thin(lake: Lake, name: str, retention: Retention, now: datetime, *, thorough: bool) -> int:
    """Thin table ``name`` as far as it is due; how many rows went. SojournError where the table cannot be used."""
    files = add_actions(lake, name)
    if files.num_rows == 0 or "max.epoch" not in files.column_names:
        return 0
    current = pc.max(files.column("max.epoch")).as_py()
    closed = files.filter(pc.less(files.column("max.epoch"), current))
    gone = 0
    for conditions in _due(closed, retention, now, thorough=thorough):
        region = Region((*conditions, ("epoch", "<", current)))
        done = replace(lake, name, region, lambda rows: thinned(rows, retention, now))
        gone += done[0] - done[1] if done else 0
    return gone


def _due(
    files: pa.Table, retention: Retention, now: datetime, *, thorough: bool
) -> list[tuple[tuple[str, str, Value], ...]]:
    """Parts of the table that are worth a commit: many small files, and hours and days told too finely."""
    small = files.filter(pc.less(files.column("size_bytes"), SMALL_BYTES // 8))
    due: list[tuple[tuple[str, str, Value], ...]] = []
    if small.num_rows >= MANY_FILES:
        due.append((("epoch", ">=", pc.min(small.column("min.epoch")).as_py()),))
    if thorough:
        for width, older in ((HOUR, retention.seconds_for), (DAY, retention.minutes_for)):
            due += [_between(begins, width) for begins in _windows(files, width, now - older)]
    return due


def _windows(files: pa.Table, width: int, until: datetime) -> list[int]:
    """The windows, by the second in which they begin, that end before ``until`` and stand in more than one file."""
    found: dict[int, int] = {}
    ends = (files.column(f"{end}.as_of").cast(TIMESTAMP).cast(pa.int64()).to_pylist() for end in ("min", "max"))
    for first, last in zip(*ends, strict=True):
        for number in range(first // _MICROS // width, last // _MICROS // width + 1):
            found[number] = found.get(number, 0) + 1
    return sorted(
        number * width for number, count in found.items() if count > 1 and (number + 1) * width <= until.timestamp()
    )


def _between(begins: int, width: int) -> tuple[tuple[str, str, Value], ...]:
    first = datetime.fromtimestamp(begins, UTC)
    return ("as_of", ">=", first), ("as_of", "<", first + timedelta(seconds=width))


def thinned(rows: pa.Table, retention: Retention, now: datetime) -> pa.Table:
    """Of each key the newest of ``rows`` in each second, minute or hour, by how old they are; in order of revision."""
    micros = rows.column("as_of").cast(pa.int64()).to_numpy()
    age = now.timestamp() * _MICROS - micros
    seconds = micros // _MICROS
    minutes_old, hours_old, gone = (
        age > limit.total_seconds() * _MICROS
        for limit in (retention.seconds_for, retention.minutes_for, retention.hours_for)
    )
    width = np.where(hours_old, HOUR, np.where(minutes_old, MINUTE, 1))
    windows = seconds // width * width + (width - 1)
    names = [name for name in _NAMES if name in rows.column_names]
    order = np.argsort(rows.column("revision").to_numpy(), kind="stable")
    order = order[~gone[order]]
    keyed = rows.select(names).take(pa.array(order))
    keyed = keyed.append_column("window", pa.array(windows[order])).append_column(
        "row", pa.array(np.arange(len(order)))
    )
    last = keyed.group_by([*names, "window"]).aggregate([("row", "max")]).column("row_max").to_numpy()
    return rows.take(pa.array(order[np.sort(last)]))
