"""Hours that are kept no longer become an opening balance: one partial a key, with a bucket from 1970 until then.

What is true now rests on all that ever happened: a backlog is arrivals less ends. The opening balance carries those
sums, and the enqueue seconds of what is still there; ages and processing times are history, which is what is dropped.
Late rows from before the boundary join it the next time.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lake.dataset import rows_of
from lake.store import Lake
from spark_analytics.maintenance.region import Region, replace
from spark_analytics.maintenance.retention import DAY, Retention, data_time, floor
from spark_analytics.transforms.rollup import opening_balance

log = logging.getLogger(__name__)

_KEYS = ["broker", "bucket_start", "bucket_seconds", "newest_occurred_at"]


def boundaries(lake: Lake, retention: Retention, now: datetime) -> dict[str, datetime]:
    """The day until which each broker's history is due to be folded; only where there is something to fold."""
    table = lake.ensure("partials")
    found = {}
    # The latest boundary that any broker can have: all it takes to learn that nothing is old.
    latest = floor(now - retention.hours_for, DAY)
    old = Region((("bucket_start", "<", latest),)).read(table, _KEYS)
    unfolded = old.filter(pc.not_equal(old.column("bucket_seconds"), _seconds(latest)))
    for broker in pc.unique(unfolded.column("broker")).to_pylist():
        newest = _newest(rows_of(table, ["newest_occurred_at"], [("broker", "=", broker)]))
        boundary = floor(data_time(newest, now) - retention.hours_for, DAY)
        mine = old.filter(
            pc.and_(pc.equal(old.column("broker"), broker), pc.less(old.column("bucket_start"), boundary))
        )
        if pc.any(pc.not_equal(mine.column("bucket_seconds"), _seconds(boundary))).as_py():
            found[broker] = boundary
    return found


def _newest(rows: pa.Table) -> datetime:
    newest: datetime = pc.max(rows.column("newest_occurred_at")).as_py()
    return newest


def _seconds(boundary: datetime) -> int:
    return int(boundary.timestamp())


def region(broker: str, boundary: datetime) -> Region:
    """What of ``broker`` is folded."""
    return Region((("broker", "=", broker), ("bucket_start", "<", boundary)))


def fold(lake: Lake, retention: Retention, now: datetime | None = None) -> int:
    """Fold what is older than ``retention.hours_for``; the number of rows that gold has less."""
    saved = 0
    for broker, boundary in boundaries(lake, retention, now or datetime.now(UTC)).items():
        fold_rows = partial(opening_balance, until_second=_seconds(boundary))
        counts = replace(lake, "partials", region(broker, boundary), fold_rows)
        if counts is not None:
            log.info("folded %s until %s: %d → %d rows", broker, boundary, *counts)
            saved += counts[0] - counts[1]
    return saved


def opened(lake: Lake) -> dict[str, datetime]:
    """Until when each broker's history is one opening balance."""
    epoch = datetime.fromtimestamp(0, UTC)
    rows = Region((("bucket_start", "=", epoch),)).read(lake.ensure("partials"), ["broker", "bucket_seconds"])
    ends = rows.group_by("broker").aggregate([("bucket_seconds", "max")])
    return {row["broker"]: datetime.fromtimestamp(row["bucket_seconds_max"], UTC) for row in ends.to_pylist()}
