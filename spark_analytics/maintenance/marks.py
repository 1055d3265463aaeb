"""Marks that have told all they can go: the table of single messages is as long as its open questions.

A pause (a failure until the next attempt) adds one message at its begin and takes it away at its end. Where history is
told by the hour and both lie in one hour, or before the opening balance, the two cancel in every view: a message whose
pauses all do, and of whom nothing was heard for ``marks_for``, is forgotten. What waits for its retry is remembered for
as long as it waits. First attempts have a way of their own: :mod:`spark_analytics.maintenance.receipts`.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from importlib import resources

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lake.dataset import dataset, rows_of
from lake.store import Lake, conform
from lake.tables import MARKS
from spark_analytics.maintenance import receipts
from spark_analytics.maintenance.hours import WORTH, Hour, runs
from spark_analytics.maintenance.levels import first_fine
from spark_analytics.maintenance.opening import opened
from spark_analytics.maintenance.region import Region, replace
from spark_analytics.maintenance.retention import DAY, HOUR, Retention, data_time, floor

log = logging.getLogger(__name__)

_MEMORY = "512MB"
_FAR = 1 << 40
_KEPT = """
SELECT r.* FROM there AS r
ANTI JOIN dropped AS d
  ON d.broker = r.broker AND d.queue = r.queue AND d.subscriber = r.subscriber AND d.message_id = r.message_id
  AND (r.event_type <> 'received' OR r.attempt IS DISTINCT FROM 1)
"""


def prune(lake: Lake, retention: Retention, now: datetime | None = None) -> int:
    """Forget what can be; the number of rows that the table has less."""
    now = now or datetime.now(UTC)
    saved = sum(_expire(lake, broker, until) for broker, until in opened(lake).items())
    bounds = _bounds(lake, retention, now)
    if bounds.num_rows == 0:
        return saved
    with _judged(lake, bounds) as connection:
        worth = "SELECT hour, there, FALSE FROM savings WHERE saved > 0 AND saved >= ? * there ORDER BY hour"
        hours: list[Hour] = connection.execute(worth, [WORTH]).fetchall()
        saved += sum(_forget(lake, connection, first, last) for first, last, _ in runs(hours))
        return saved + receipts.fold(lake, bounds, connection)


def prunable(lake: Lake, retention: Retention, now: datetime) -> int:
    """The rows that :func:`prune` would drop, those of expired first attempts left out."""
    bounds = _bounds(lake, retention, now)
    if bounds.num_rows == 0:
        return 0
    with _judged(lake, bounds) as connection:
        worth = "SELECT COALESCE(SUM(saved), 0) FROM savings WHERE saved >= ? * there"
        [(rows,)] = connection.execute(worth, [WORTH]).fetchall()
        return int(rows) + receipts.foldable(lake, bounds, connection)


def _bounds(lake: Lake, retention: Retention, now: datetime) -> pa.Table:
    """The bounds of prune.sql and receipts.sql, of each broker whose oldest marks are settled."""
    times = rows_of(lake.ensure("marks"), ["broker", "occurred_at"])
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
                    "remembered": int((settled - receipts.REMEMBERED).timestamp()),
                }
            )
    seconds = [(name, pa.int64()) for name in ("opened", "coarse", "settled", "remembered")]
    return pa.Table.from_pylist(rows, pa.schema([("broker", pa.string()), *seconds]))


def _judged(lake: Lake, bounds: pa.Table) -> duckdb.DuckDBPyConnection:
    """A connection with the tables ``dropped`` and ``savings`` of prune.sql."""
    connection = duckdb.connect(config={"memory_limit": _MEMORY, "threads": "1"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("marks", dataset(lake.ensure("marks")))
    connection.register("bounds", bounds)
    connection.execute(resources.files("spark_analytics.maintenance").joinpath("prune.sql").read_text(encoding="utf-8"))
    return connection


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
