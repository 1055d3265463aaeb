"""Small files → few: a table that grows by a commit a second holds thousands by the hour.

Gold is merged by time, a minute's files into one, an hour's, a day's, so that what has been merged is not touched again
until the next step, and rolling up an hour rewrites that hour alone. What is only appended to (bronze, alerts) is
compacted by Delta itself, whose commits say that no data changed: streams pass over them.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.store import Lake
from spark_analytics.maintenance.region import Region, Value, replace
from spark_analytics.maintenance.retention import DAY, HOUR, MINUTE

log = logging.getLogger(__name__)

#: Files of a table below which compacting it is not worth a commit.
MANY_FILES = 32


@dataclass(frozen=True, slots=True)
class Step:
    """Files that lie wholly in one window of ``width`` seconds of ``column`` become one, when the window is over.

    ``level``: only partials of that many seconds.
    """

    column: str
    width: int
    level: int | None = None

    def conditions(self, begins: datetime) -> tuple[tuple[str, str, Value], ...]:
        """The window that begins at ``begins``, as conditions of a region."""
        ends = begins + timedelta(seconds=self.width)
        window: tuple[tuple[str, str, Value], ...] = ((self.column, ">=", begins), (self.column, "<", ends))
        return window if self.level is None else (*window, ("bucket_seconds", "=", self.level))


STEPS = {
    "partials": (
        Step("bucket_start", MINUTE, level=1),
        Step("bucket_start", HOUR, level=MINUTE),
        Step("bucket_start", DAY, level=HOUR),
    ),
    "marks": (Step("occurred_at", MINUTE), Step("occurred_at", HOUR), Step("occurred_at", DAY)),
}


def windows(files: pa.Table, step: Step, now: datetime) -> list[datetime]:
    """The beginnings of the windows that hold several of ``files`` (Delta's add actions, flattened).

    A window is over when as much time as it is wide has passed since its end, by the newest of the files' times.
    """
    if f"min.{step.column}" not in files.column_names:  # no statistics: an empty table
        return []
    kept = files.filter(pc.is_valid(files.column(f"max.{step.column}")))
    if step.level is not None:
        of_level = (pc.equal(kept.column(f"{end}.bucket_seconds"), step.level) for end in ("min", "max"))
        kept = kept.filter(pc.and_(*of_level))
    if kept.num_rows == 0:
        return []
    newest = min(now, pc.max(files.column(f"max.{step.column}")).as_py()).timestamp()
    counts: Counter[int] = Counter()
    for first, last in zip(_numbers(kept, "min", step), _numbers(kept, "max", step), strict=True):
        if first == last and (first + 2) * step.width <= newest:
            counts[first] += 1
    return [datetime.fromtimestamp(number * step.width, UTC) for number, files_ in sorted(counts.items()) if files_ > 1]


def _numbers(files: pa.Table, end: str, step: Step) -> Any:
    micros = files.column(f"{end}.{step.column}").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.divide(micros, step.width * 1_000_000).to_pylist()


def add_actions(lake: Lake, name: str) -> pa.Table:
    """The files of table ``name`` with their statistics."""
    return pa.table(lake.ensure(name).get_add_actions(flatten=True))


def merge(lake: Lake, name: str, now: datetime) -> None:
    """Merge the small files of table ``name``, rows unchanged."""
    if name not in STEPS:
        files = add_actions(lake, name).num_rows
        if files >= MANY_FILES:
            lake.compact(name)
        return
    for step in STEPS[name]:
        for begins in windows(add_actions(lake, name), step, now):
            replace(lake, name, Region(step.conditions(begins)), lambda rows: rows)


def mergeable(lake: Lake, name: str, now: datetime) -> int:
    """The files that :func:`merge` would merge now."""
    files = add_actions(lake, name)
    if name not in STEPS:
        return files.num_rows if files.num_rows >= MANY_FILES else 0
    return sum(len(windows(files, step, now)) for step in STEPS[name])
