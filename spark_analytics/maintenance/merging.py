"""Small files → few: a table that grows by a commit a second holds thousands by the hour.

Partials are merged by time, a minute's files into one, an hour's, a day's, so that what has been merged is not touched
again until the next step, and rolling up an hour rewrites that hour alone. Other tables are compacted by Delta itself,
whose commits say that no data changed: streams pass over them, and readers need not look.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lake.schema import TIMESTAMP
from lake.store import Lake
from spark_analytics.maintenance.region import Region, replace
from spark_analytics.maintenance.retention import DAY, HOUR, MINUTE

log = logging.getLogger(__name__)

#: Fewer files are not worth a commit that compacts them.
MANY_FILES = 32
#: More small files are compacted whatever their times, as where data time stands still while commits go on.
MOST_FILES = 1000
#: How large a file of gold grows by being compacted without regard to time: it is rewritten when part of it ages.
SMALL_BYTES = 16 << 20
LARGE_BYTES = 100_000_000
GOLD_TABLES = ("partials", "marks")
_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """Files of partials of ``level`` seconds that lie wholly in one window of ``width`` seconds become one."""

    width: int
    level: int

    def region(self, begins: datetime) -> Region:
        """The rows in the window that begins at ``begins``."""
        ends = begins + timedelta(seconds=self.width)
        return Region(
            (("bucket_start", ">=", begins), ("bucket_start", "<", ends), ("bucket_seconds", "=", self.level))
        )


STEPS = (
    Step(MINUTE, level=1),
    Step(HOUR, level=MINUTE),
    Step(DAY, level=HOUR),
)


def windows(files: pa.Table, step: Step, now: datetime) -> list[datetime]:
    """The beginnings of the windows that hold several of ``files`` (Delta's add actions, flattened).

    A window is over when as much time as it is wide has passed since its end, by the newest of the files' times.
    """
    if not _told(files):
        return []
    of_level = (pc.equal(files.column(f"{end}.bucket_seconds"), step.level) for end in ("min", "max"))
    mine = files.filter(pc.and_(*of_level))
    newest = min(now, pc.max(files.column("max.bucket_start")).as_py()).timestamp()
    width = step.width
    counts = Counter(
        first
        for first, last in zip(*(_numbers(mine, end, width).to_pylist() for end in ("min", "max")), strict=True)
        if first == last and (first + 2) * width <= newest
    )
    return [datetime.fromtimestamp(number * width, UTC) for number, count in sorted(counts.items()) if count > 1]


def stragglers(files: pa.Table) -> int:
    """How many small files no step can merge: each holds rows of several hours, or levels, as a replay writes them."""
    if not _told(files):
        return 0
    mixed = pc.not_equal(*(files.column(f"{end}.bucket_seconds") for end in ("min", "max")))
    wide = pc.not_equal(*(_numbers(files, end, HOUR) for end in ("min", "max")))
    fine = pc.less(files.column("max.bucket_seconds"), HOUR)
    small = pc.less(files.column("size_bytes"), SMALL_BYTES)
    return int(pc.sum(pc.and_(pc.or_(mixed, pc.and_(wide, fine)), small)).as_py() or 0)


def _told(files: pa.Table) -> bool:
    """Whether there are files, and statistics of them."""
    return files.num_rows > 0 and "min.bucket_start" in files.column_names


def _numbers(files: pa.Table, end: str, width: int) -> pa.ChunkedArray:
    """The windows of ``width`` seconds in which the files begin (``end``: min) or end (max)."""
    micros = files.column(f"{end}.bucket_start").cast(TIMESTAMP).cast(pa.int64())
    return pc.divide(micros, width * _MICROS)


def add_actions(lake: Lake, name: str) -> pa.Table:
    """The files of table ``name`` with their statistics."""
    return pa.table(lake.ensure(name).get_add_actions(flatten=True))


def merge(lake: Lake, name: str, now: datetime) -> None:
    """Merge the small files of table ``name``, rows unchanged."""
    for step in STEPS if name == "partials" else ():
        for begins in windows(add_actions(lake, name), step, now):
            replace(lake, name, step.region(begins), _unchanged)
    if _many(lake, name):
        lake.compact(name, target_bytes=_target(name))


def mergeable(lake: Lake, name: str, now: datetime) -> int:
    """How many merges :func:`merge` would make now."""
    steps = STEPS if name == "partials" else ()
    return sum(len(windows(add_actions(lake, name), step, now)) for step in steps) + _many(lake, name)


def _many(lake: Lake, name: str) -> bool:
    files = add_actions(lake, name)
    small = int(pc.sum(pc.less(files.column("size_bytes"), _target(name) // 2)).as_py() or 0)
    if name == "partials":
        return stragglers(files) >= MANY_FILES or small >= MOST_FILES
    return small >= MANY_FILES


def _target(name: str) -> int:
    return SMALL_BYTES if name in GOLD_TABLES else LARGE_BYTES


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows
