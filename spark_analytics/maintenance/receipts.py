"""First attempts of named subscribers: single marks until they are settled, then sums in partials.

Which subscriber was a message's first shows only across events, so each first attempt is a mark at first. Once it is
settled, the earliest of each message is folded: its age is added to the partial of its bucket. That takes two tables,
and so goes by numbers: a commit to `marks` gives the next number to some of them and carries it as a transaction of
Delta, so that no two commits have the same; then one commit to `partials` adds up the marks of that number and carries
it, too. Views pass over marks with a number that partials have reached. So a message counts once at every instant,
whoever is killed when, and the next round goes on from the numbers that the two tables tell.

What was folded is remembered for two more days, so that the next subscriber's first attempt is known not to be one.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import resources
from string import Template

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lake.dataset import rows_of
from lake.store import Lake, conform
from lake.tables import FOLDED_KIND, MARKS, PARTIALS
from spark_analytics.fold.lived import LEVELS, levels_of
from spark_analytics.maintenance.hours import WORTH, Hour, runs
from spark_analytics.maintenance.region import Region, replace
from spark_analytics.maintenance.retention import HOUR, MINUTE
from spark_analytics.transforms.rollup import added_up

log = logging.getLogger(__name__)

#: The application whose transactions number the folds, in `marks` and in `partials`.
APPLICATION = "first_receipts"
#: How much longer what was folded is remembered.
REMEMBERED = timedelta(days=2)

_JUDGED = """
WITH known AS (
  SELECT
    t.*, m.earliest, m.folded AS was_folded, m.pending, b.remembered, e.message_id IS NOT NULL AS ends,
    COALESCE(t.event_type = 'received' AND t.attempt = 1 AND epoch_us(t.occurred_at) // 1000000 < b.settled, FALSE)
      AND m.message_id IS NOT NULL AS settled
  FROM there AS t
  LEFT JOIN bounds AS b ON b.broker = t.broker
  LEFT JOIN messages AS m
    ON t.subscriber <> '' AND m.broker = t.broker AND m.queue = t.queue AND m.message_id = t.message_id
  LEFT JOIN ending AS e
    ON e.broker = t.broker AND e.queue = t.queue AND e.subscriber = t.subscriber AND e.message_id = t.message_id
),
judged AS (
  SELECT
    *,
    NOT was_folded AND NOT BOOL_OR(fold IS NOT NULL) OVER message AND occurred_at <= earliest
      AND ROW_NUMBER() OVER (message ORDER BY occurred_at, age_seconds NULLS FIRST, subscriber) = 1 AS is_first
  FROM known
  WINDOW message AS (PARTITION BY broker, queue, message_id, settled)
)
SELECT * REPLACE (
  CASE WHEN NOT settled OR fold IS NOT NULL THEN fold WHEN is_first AND age_seconds IS NOT NULL THEN $number ELSE 0 END
    AS fold
)
FROM judged
WHERE NOT settled OR ends OR CASE
  WHEN fold IS NULL THEN is_first
  ELSE pending OR fold > $newest OR epoch_us(occurred_at) // 1000000 >= remembered
END
"""
_ADDED_UP = f"""
WITH placed AS (
  SELECT
    t.*, epoch_us(t.occurred_at) // 1000000 AS at_second,
    CASE WHEN at_second <= l.hours_until THEN {HOUR} WHEN at_second <= l.minutes_until THEN {MINUTE} ELSE 1 END AS width
  FROM there AS t
  LEFT JOIN levels AS l ON l.broker = t.broker
),
counted AS (
  SELECT
    broker, queue, subscriber, tenant, at_second // width * width AS start_second, width, age_index,
    COUNT(*) AS n, SUM(age_seconds) AS total, MAX(age_seconds) AS most, COUNT(*) FILTER (age_skewed) AS skewed,
    MAX(occurred_at) AS newest
  FROM placed
  GROUP BY ALL
)
SELECT
  broker, queue, subscriber, tenant, make_timestamptz(start_second * 1000000) AS bucket_start,
  CAST(width AS INT) AS bucket_seconds, MAX(newest) AS newest_occurred_at,
  CAST(SUM(n) AS BIGINT) AS {FOLDED_KIND}_age_count, SUM(total) AS {FOLDED_KIND}_age_sum,
  MAX(most) AS {FOLDED_KIND}_age_max, CAST(SUM(skewed) AS BIGINT) AS {FOLDED_KIND}_age_skewed,
  list({{'index': age_index, 'count': n}}) AS {FOLDED_KIND}_age_histogram,
  CAST(? AS BIGINT) AS {FOLDED_KIND}_age_fold
FROM counted
GROUP BY ALL
"""


def fold(lake: Lake, bounds: pa.Table, connection: duckdb.DuckDBPyConnection) -> int:
    """Fold what is settled, and forget what was folded long ago; the number of rows that `marks` has less.

    ``bounds``: by broker the unix seconds `settled` (first attempts from before it are folded) and `remembered`.
    ``connection`` is to hold `marks`.
    """
    if not _finish(lake):
        return 0
    newest = _survey(lake, bounds, connection)
    worth = (
        "SELECT hour, there, unfolded > 0 FROM hours WHERE unfolded > 0 OR (gone > 0 AND gone >= ? * there) ORDER BY 1"
    )
    hours: list[Hour] = connection.execute(worth, [WORTH]).fetchall()
    saved = 0
    for first, last, unfolded in runs(hours):
        number = (lake.committed("marks", APPLICATION) or 0) + 1 if unfolded else None
        before, after = _judge(lake, connection, (first, last), newest, number) or (0, 0)
        saved += before - after
        if not _finish(lake):
            break
    return saved


def foldable(lake: Lake, bounds: pa.Table, connection: duckdb.DuckDBPyConnection) -> int:
    """The rows that :func:`fold` would take from `marks` now."""
    _survey(lake, bounds, connection)
    worth = "SELECT COALESCE(SUM(gone), 0) FROM hours WHERE unfolded > 0 OR gone >= ? * there"
    [(rows,)] = connection.execute(worth, [WORTH]).fetchall()
    return int(rows)


def _survey(lake: Lake, bounds: pa.Table, connection: duckdb.DuckDBPyConnection) -> int:
    """Make the tables of receipts.sql; the newest number that `partials` have reached."""
    newest = lake.committed("partials", APPLICATION) or 0
    connection.register("bounds", bounds)
    text = resources.files("spark_analytics.maintenance").joinpath("receipts.sql").read_text(encoding="utf-8")
    connection.execute(Template(text).substitute(newest=newest))
    return newest


def _judge(
    lake: Lake, connection: duckdb.DuckDBPyConnection, hours: tuple[int, int], newest: int, number: int | None
) -> tuple[int, int] | None:
    """Number the first of each message, drop the others and what need not be remembered: rows before and after."""

    def judged(there: pa.Table) -> pa.Table | None:
        connection.register("there", there)
        sql = Template(_JUDGED).substitute(number=number or 0, newest=newest)
        rows = connection.sql(sql).to_arrow_table().select(MARKS.schema.names)
        numbered = number is not None and pc.any(pc.equal(rows.column("fold"), number)).as_py()
        return conform(rows, MARKS.schema) if numbered or rows.num_rows < there.num_rows else None

    begins, ends = (datetime.fromtimestamp(hour * HOUR, UTC) for hour in (hours[0], hours[1] + 1))
    region = Region((("occurred_at", ">=", begins), ("occurred_at", "<", ends)))
    return replace(lake, "marks", region, judged, numbered=None if number is None else (APPLICATION, number))


def _finish(lake: Lake) -> bool:
    """Bring `partials` to the newest number that `marks` have; False where others write to them all the while."""
    numbered = lake.committed("marks", APPLICATION) or 0
    while (number := (lake.committed("partials", APPLICATION) or 0) + 1) <= numbered:
        there = rows_of(lake.ensure("marks"), where=[("fold", "=", number)])
        if there.num_rows == 0:  # emptied since, to be computed anew
            lake.append("partials", PARTIALS.schema.empty_table(), app_id=APPLICATION, version=number)
            continue
        rows = _added_up(lake, there, number)
        starts = pc.min_max(pc.divide(rows.column("bucket_start").cast(pa.int64()), HOUR * 1_000_000)).as_py()
        begins, ends = (datetime.fromtimestamp(hour * HOUR, UTC) for hour in (starts["min"], starts["max"] + 1))
        region = Region((("bucket_start", ">=", begins), ("bucket_start", "<", ends)))
        replace(lake, "partials", region, partial(_with, rows), numbered=(APPLICATION, number))
        if (lake.committed("partials", APPLICATION) or 0) < number:
            return False
        log.info("folded %d first attempts into %d partials", there.num_rows, rows.num_rows)
    return True


def _with(more: pa.Table, there: pa.Table) -> pa.Table:
    return added_up(pa.concat_tables([there, more]))


def _added_up(lake: Lake, there: pa.Table, number: int) -> pa.Table:
    """Partials of the marks ``there``, in the buckets that partials of their time have."""
    coarse = Region((("bucket_seconds", ">=", MINUTE),)).read(lake.ensure("partials"), list(LEVELS))
    known = [
        {"broker": broker, "minutes_until": minutes, "hours_until": hours}
        for broker, (minutes, hours) in levels_of(coarse).items()
    ]
    kinds = pa.schema([("broker", pa.string()), ("minutes_until", pa.int64()), ("hours_until", pa.int64())])
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("there", there)
        connection.register("levels", pa.Table.from_pylist(known, kinds))
        rows = connection.sql(_ADDED_UP, params=[number]).to_arrow_table()
    zeros = pa.array([0] * rows.num_rows, pa.int64())
    for field in PARTIALS.schema:
        if not field.nullable and field.name not in rows.column_names:
            rows = rows.append_column(field.name, zeros)
    return conform(rows, PARTIALS.schema)
