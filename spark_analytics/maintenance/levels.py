"""History gets coarser with age: seconds that have aged become minutes, minutes hours, each in one atomic commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lake.store import Lake
from spark_analytics.maintenance.region import Region, replace
from spark_analytics.maintenance.retention import HOUR, MINUTE, Retention, data_time, floor
from spark_analytics.maintenance.slices import SPANS, slices
from spark_analytics.transforms.rollup import rolled_up

log = logging.getLogger(__name__)

_KEYS = ["broker", "bucket_start", "bucket_seconds", "newest_occurred_at"]
_EVER = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Partials of one broker, from ``begins`` until before ``ends``, to be rolled up into buckets of ``seconds``."""

    broker: str
    begins: datetime
    ends: datetime
    seconds: int

    def region(self) -> Region:
        """The stretch as a part of the table."""
        return Region(
            (("broker", "=", self.broker), ("bucket_start", ">=", self.begins), ("bucket_start", "<", self.ends))
        )


def due(partials: pa.Table, retention: Retention, now: datetime) -> Iterator[Stretch]:
    """What of ``partials`` (broker, bucket_start, bucket_seconds, newest_occurred_at) has aged enough, hours first."""
    for broker in pc.unique(partials.column("broker")).to_pylist():
        rows = partials.filter(pc.equal(partials.column("broker"), broker))
        newest = data_time(pc.max(rows.column("newest_occurred_at")).as_py(), now)
        starts = rows.column("bucket_start")
        hours_end = floor(newest - retention.minutes_for, HOUR)
        minutes_end = max(hours_end, floor(newest - retention.seconds_for, MINUTE))
        for seconds, since, ends in ((HOUR, _EVER, hours_end), (MINUTE, hours_end, minutes_end)):
            aged = pc.and_(pc.greater_equal(starts, since), pc.less(starts, ends))
            aged = pc.and_(aged, pc.less(rows.column("bucket_seconds"), seconds))
            aged_starts = starts.filter(aged).cast(pa.int64()).to_numpy() // 1_000_000
            for begins, until in slices(aged_starts, seconds, SPANS[seconds]):
                yield Stretch(broker, _instant(begins), _instant(until), seconds)


def _instant(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def stretches(lake: Lake, retention: Retention, now: datetime) -> list[Stretch]:
    """What is due in the lake."""
    fine = Region((("bucket_seconds", "<", HOUR),)).read(lake.ensure("partials"), _KEYS)
    return list(due(fine, retention, now))


def roll_up(lake: Lake, retention: Retention, now: datetime | None = None) -> int:
    """Roll up all that is due; the number of rows that gold has less. A stretch that others write into is deferred."""
    saved = 0
    for stretch in stretches(lake, retention, now or datetime.now(UTC)):
        counts = replace(lake, "partials", stretch.region(), partial(rolled_up, seconds=stretch.seconds))
        if counts is not None:
            before, after = counts
            log.info("rolled up %s to %d s until %s: %d → %d rows", stretch.broker, stretch.seconds, stretch.ends,
                     before, after)  # fmt: skip
            saved += before - after
    return saved


def first_fine(lake: Lake) -> dict[str, datetime]:
    """Where each broker's partials begin to be told finer than by the hour; brokers without such rows are left out."""
    fine = Region((("bucket_seconds", "<", HOUR),)).read(lake.ensure("partials"), ["broker", "bucket_start"])
    firsts = fine.group_by("broker").aggregate([("bucket_start", "min")])
    return {row["broker"]: row["bucket_start_min"] for row in firsts.to_pylist()}


def rows_due(lake: Lake, retention: Retention, now: datetime) -> int:
    """The rows of partials in the stretches that are due."""
    table = lake.ensure("partials")
    return sum(stretch.region().read(table, ["broker"]).num_rows for stretch in stretches(lake, retention, now))
