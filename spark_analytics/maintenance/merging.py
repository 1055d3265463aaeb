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

#: Fewer files are not worth a commit that compacts them.
MANY_FILES = 32
#: How large a file of gold grows by being compacted without regard to time: it is rewritten when part of it ages.
SMALL_BYTES = 16 << 20
_MICROS = 1_000_000


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
    return pc.divide(micros, step.width * _MICROS).to_pylist()


def stragglers(files: pa.Table, steps: tuple[Step, ...]) -> int:
    """How many small files no step can merge: each holds rows of several hours, or levels, as a replay writes them."""
    column = f"min.{steps[0].column}"
    if column not in files.column_names:
        return 0
    wide = pc.not_equal(*(_hours(files, end, steps[0].column) for end in ("min", "max")))
    if steps[0].level is not None:
        levels = (pc.greater_equal(files.column(f"{end}.bucket_seconds"), HOUR) for end in ("min", "max"))
        mixed = pc.not_equal(*(files.column(f"{end}.bucket_seconds") for end in ("min", "max")))
        wide = pc.or_(mixed, pc.and_(wide, pc.invert(pc.and_(*levels))))
    small = pc.less(files.column("size_bytes"), SMALL_BYTES)
    return int(pc.sum(pc.and_(pc.fill_null(wide, False), small)).as_py() or 0)


def _hours(files: pa.Table, end: str, column: str) -> pa.ChunkedArray:
    return pc.divide(
        files.column(f"{end}.{column}").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), HOUR * _MICROS
    )


def add_actions(lake: Lake, name: str) -> pa.Table:
    """The files of table ``name`` with their statistics."""
    return pa.table(lake.ensure(name).get_add_actions(flatten=True))


def merge(lake: Lake, name: str, now: datetime) -> None:
    """Merge the small files of table ``name``, rows unchanged."""
    steps = STEPS.get(name, ())
    for step in steps:
        for begins in windows(add_actions(lake, name), step, now):
            replace(lake, name, Region(step.conditions(begins)), _unchanged)
    files = add_actions(lake, name)
    if (stragglers(files, steps) if steps else files.num_rows) >= MANY_FILES:
        lake.compact(name, target_bytes=SMALL_BYTES if steps else None)


def mergeable(lake: Lake, name: str, now: datetime) -> int:
    """How many merges :func:`merge` would make now."""
    files, steps = add_actions(lake, name), STEPS.get(name, ())
    left_over = (stragglers(files, steps) if steps else files.num_rows) >= MANY_FILES
    return sum(len(windows(files, step, now)) for step in steps) + left_over


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows
