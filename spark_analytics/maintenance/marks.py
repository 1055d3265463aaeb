"""Marks that have told all they can go: the table of single messages is as long as its open questions.

A pause (a failure until the next attempt) adds one message at its begin and takes it away at its end. Where history is
told by the hour and both lie in one hour, or before the opening balance, the two cancel in every view: a message whose
pauses all do, and of whom nothing was heard for ``marks_for``, is forgotten. Of first attempts only each message's
earliest counts. What waits for its retry is remembered for as long as it waits.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from importlib import resources

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lake.store import Lake, conform
from lake.tables import MARKS
from spark_analytics.maintenance.levels import first_fine
from spark_analytics.maintenance.opening import opened
from spark_analytics.maintenance.region import Region, replace
from spark_analytics.maintenance.retention import DAY, HOUR, Retention, data_time, floor

log = logging.getLogger(__name__)

#: An hour is rewritten when at least this share of it goes.
WORTH = 0.1
#: How far back first attempts are compared, counted from where marks are settled: the rest was compared before.
LOOK_BACK = timedelta(days=2)
#: How many marks one commit rewrites, where an hour does not hold more.
MOST_ROWS = 500_000
_MEMORY = "512MB"
_FAR = 1 << 40
_KEPT = """
SELECT r.* FROM there AS r
ANTI JOIN dropped AS d
  ON d.broker = r.broker AND d.queue = r.queue AND d.subscriber = r.subscriber AND d.message_id = r.message_id
  AND (r.event_type <> 'received' OR r.attempt IS DISTINCT FROM 1)
ANTI JOIN later AS l
  ON l.broker = r.broker AND l.queue = r.queue AND l.subscriber = r.subscriber AND l.message_id = r.message_id
  AND r.event_type = 'received' AND r.attempt = 1 AND r.occurred_at = l.occurred_at
"""


def thin(lake: Lake, retention: Retention, now: datetime | None = None) -> int:
    """Forget what can be; the number of rows that the table has less."""
    now = now or datetime.now(UTC)
    bounds = _bounds(lake, retention, now)
    if bounds.num_rows == 0:
        return 0
    with _judged(lake, bounds) as connection:
        worth = "SELECT hour, there FROM savings WHERE saved > 0 AND saved >= ? * there ORDER BY hour"
        hours: list[tuple[int, int]] = connection.execute(worth, [WORTH]).fetchall()
        saved = sum(_forget(lake, connection, first, last) for first, last in _runs(hours))
    return saved + sum(_expire(lake, broker, until) for broker, until in opened(lake).items())


def thinnable(lake: Lake, retention: Retention, now: datetime) -> int:
    """The rows that :func:`thin` would drop, those of expired first attempts left out."""
    bounds = _bounds(lake, retention, now)
    if bounds.num_rows == 0:
        return 0
    with _judged(lake, bounds) as connection:
        worth = "SELECT COALESCE(SUM(saved), 0) FROM savings WHERE saved >= ? * there"
        [(rows,)] = connection.execute(worth, [WORTH]).fetchall()
    return int(rows)


def _bounds(lake: Lake, retention: Retention, now: datetime) -> pa.Table:
    """The bounds of thin.sql, of each broker whose oldest marks are settled."""
    times = lake.ensure("marks").to_pyarrow_table(columns=["broker", "occurred_at"])
    fine, folded = first_fine(lake), opened(lake)
    rows = []
    for row in times.group_by("broker").aggregate([("occurred_at", "min"), ("occurred_at", "max")]).to_pylist():
        # By whole days: a reader that follows the table begins anew whenever rows of it go.
        settled = floor(data_time(row["occurred_at_max"], now) - retention.marks_for, DAY)
        if row["occurred_at_min"] < settled:
            broker = row["broker"]
            rows.append(
                {
                    "broker": broker,
                    "opened": int(folded[broker].timestamp()) if broker in folded else 0,
                    "coarse": int(fine[broker].timestamp()) if broker in fine else _FAR,
                    "settled": int(settled.timestamp()),
                }
            )
    kinds = [("broker", pa.string()), ("opened", pa.int64()), ("coarse", pa.int64()), ("settled", pa.int64())]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def _judged(lake: Lake, bounds: pa.Table) -> duckdb.DuckDBPyConnection:
    """A connection with the tables ``dropped``, ``later`` and ``savings`` of thin.sql."""
    settled = pc.max(bounds.column("settled")).as_py()
    since = datetime.fromtimestamp(settled, UTC) - LOOK_BACK
    marks = lake.ensure("marks").to_pyarrow_dataset()
    is_receipt = (pc.field("event_type") == "received") & (pc.field("attempt") == 1)
    recent = (pc.field("occurred_at") >= since) & (pc.field("occurred_at") < datetime.fromtimestamp(settled, UTC))
    columns = ["broker", "queue", "subscriber", "message_id", "occurred_at"]
    connection = duckdb.connect(config={"memory_limit": _MEMORY, "threads": "1"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("marks", marks)
    connection.register("bounds", bounds)
    connection.register("receipts", marks.to_table(columns=columns, filter=is_receipt & recent))
    connection.execute(resources.files("spark_analytics.maintenance").joinpath("thin.sql").read_text(encoding="utf-8"))
    return connection


def _runs(hours: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first and last of hours that are rewritten together: of one day, as long as their rows are not too many."""
    runs: list[tuple[int, int]] = []
    rows = 0
    for hour, there in hours:
        rows += there
        if runs and hour // 24 == runs[-1][0] // 24 and rows <= MOST_ROWS:
            runs[-1] = runs[-1][0], hour
        else:
            runs.append((hour, hour))
            rows = there
    return runs


def _forget(lake: Lake, connection: duckdb.DuckDBPyConnection, first: int, last: int) -> int:
    def kept(there: pa.Table) -> pa.Table | None:
        connection.register("there", there)
        rows = conform(connection.sql(_KEPT).to_arrow_table(), MARKS.schema)
        return rows if rows.num_rows < there.num_rows else None

    begins, ends = (datetime.fromtimestamp(hour * HOUR, UTC) for hour in (first, last + 1))
    region = Region((("occurred_at", ">=", begins), ("occurred_at", "<", ends)))
    before, after = replace(lake, "marks", region, kept) or (0, 0)
    return before - after


def _expire(lake: Lake, broker: str, until: datetime) -> int:
    """First attempts from before the opening balance: their ages are history that is kept no longer."""

    def kept(there: pa.Table) -> pa.Table | None:
        first = pc.and_(pc.equal(there.column("event_type"), "received"), pc.equal(there.column("attempt"), 1))
        rows = there.filter(pc.invert(pc.fill_null(first, False)))
        return rows if rows.num_rows < there.num_rows else None

    region = Region((("broker", "=", broker), ("occurred_at", "<", until)))
    before, after = replace(lake, "marks", region, kept) or (0, 0)
    return before - after
