"""Keeping gold small: seconds that have aged become minutes, minutes hours, each in one atomic commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from lake.errors import first_line
from lake.store import Lake, LakeError
from lake.tables import PARTIALS
from spark_analytics.transforms.rollup import rolled_up

log = logging.getLogger(__name__)

MINUTE, HOUR = 60, 3600


@dataclass(frozen=True, slots=True)
class Retention:
    """How long history is told by the second, and by the minute, counted back from each broker's newest event."""

    seconds_for: timedelta = timedelta(minutes=15)
    minutes_for: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Partials of one broker, from ``begins`` until before ``ends``, to be rolled up into buckets of ``seconds``."""

    broker: str
    begins: datetime
    ends: datetime
    seconds: int


def due(partials: pa.Table, retention: Retention) -> Iterator[Stretch]:
    """What of ``partials`` (broker, bucket_start, bucket_seconds, newest_occurred_at) has aged enough, hours first."""
    for broker in pc.unique(partials.column("broker")).to_pylist():
        rows = partials.filter(pc.equal(partials.column("broker"), broker))
        newest = pc.max(rows.column("newest_occurred_at")).as_py()
        for seconds, kept_for in ((HOUR, retention.minutes_for), (MINUTE, retention.seconds_for)):
            ends = _floor(newest - kept_for, seconds)
            aged = pc.and_(pc.less(rows.column("bucket_seconds"), seconds), pc.less(rows.column("bucket_start"), ends))
            first = pc.min(rows.column("bucket_start").filter(aged)).as_py()
            if first is not None:
                yield Stretch(broker, _floor(first, seconds), ends, seconds)


def roll_up(lake: Lake, retention: Retention) -> int:
    """Roll up all that is due; the number of rows that gold has less. A stretch that others write into is put off."""
    keys = ["broker", "bucket_start", "bucket_seconds", "newest_occurred_at"]
    saved = 0
    for stretch in due(lake.read("partials", columns=keys), retention):
        try:
            saved += _replace(lake, stretch)
        except CommitFailedError as error:
            log.info("rolling up %s put off: %s", stretch.broker, first_line(error))
        except (DeltaError, OSError) as error:
            raise LakeError(f"gold cannot be rolled up: {first_line(error)}") from error
    return saved


def _replace(lake: Lake, stretch: Stretch) -> int:
    # The rows are read at the very version that the commit is checked against: what comes in between is a conflict.
    table = lake.ensure("partials")
    there = table.to_pyarrow_table(
        filters=[
            ("broker", "=", stretch.broker),
            ("bucket_start", ">=", stretch.begins),
            ("bucket_start", "<", stretch.ends),
        ]
    )
    rows = rolled_up(there.cast(PARTIALS.schema), stretch.seconds)
    write_deltalake(table, rows, mode="overwrite", predicate=_predicate(stretch))
    log.info("rolled up %s to %d s until %s: %d → %d rows", stretch.broker, stretch.seconds, stretch.ends,
             there.num_rows, rows.num_rows)  # fmt: skip
    return int(there.num_rows - rows.num_rows)


def _predicate(stretch: Stretch) -> str:
    broker = stretch.broker.replace("'", "''")
    begins, ends = (time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in (stretch.begins, stretch.ends))
    return f"broker = '{broker}' AND bucket_start >= '{begins}' AND bucket_start < '{ends}'"


def _floor(time: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(time.timestamp()) // seconds * seconds, UTC)
