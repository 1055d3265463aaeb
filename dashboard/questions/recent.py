"""The last hour of many queues at once, from what is finished or additive already: no history is folded for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dashboard.queries import KEY, SECOND, bin_of, fading, of_any
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from lake.sql.parameters import literal

#: Whether the analysis has finished anything yet, and everything.
FINISHED = "SELECT (SELECT COUNT(*) FROM queue_state) > 0 AND (SELECT COUNT(*) FROM open_gaps) = 0 AS finished"
#: A row is as old as this at most where nothing changed since: an epoch begins with one for every queue.
_BEFORE = 3600


def tails(keys: Sequence[QueueKey], span: Span, since: datetime) -> str:
    """In which histogram bucket the p99 of AgeOfFirstAttempt lies, by bin, of each of ``keys``, from ``since`` on."""
    second = "(unix_micros(bucket_start) DIV 1000000 + bucket_seconds)"
    return f"""
    WITH mine AS (
      SELECT broker, queue, NULLIF(subscriber, '') AS subscriber, {bin_of(second, span)} AS at,
        cell.index AS bucket, cell.count AS n
      FROM partials LATERAL VIEW explode(first_attempt_age_histogram) x AS cell
      WHERE bucket_start >= {literal(since)} AND ({_of_any(keys)})
    ),
    cells AS (SELECT {KEY}, at, bucket, SUM(n) AS n FROM mine GROUP BY {KEY}, at, bucket),
    ranked AS (
      SELECT
        {KEY}, at, bucket,
        SUM(n) OVER (PARTITION BY {KEY}, at ORDER BY bucket) AS seen, SUM(n) OVER (PARTITION BY {KEY}, at) AS total
      FROM cells
    )
    SELECT {KEY}, at, MIN(bucket) AS index, CAST(MAX(total) AS BIGINT) AS attempts
    FROM ranked WHERE 100 * seen >= 99 * total GROUP BY {KEY}, at
    """


def backlogs(keys: Sequence[QueueKey], span: Span) -> str:
    """By how much the backlog of each of ``keys`` changed in each bin."""
    return f"""
    {_told(keys, span)},
    ends AS (
      SELECT {KEY}, {bin_of(SECOND, span)} AS at, MAX_BY(backlog, as_of) AS backlog
      FROM told WHERE has_events GROUP BY {KEY}, {bin_of(SECOND, span)}
    )
    SELECT {KEY}, at, backlog - LAG(backlog, 1, 0) OVER (PARTITION BY {KEY} ORDER BY at) AS backlog FROM ends
    """


def rates(keys: Sequence[QueueKey], span: Span, window: int) -> str:
    """Changes of the rates of each of ``keys``: a rate holds until the next row, and for one window at most."""
    source = """
      (SELECT *, '' AS tenant, window_enqueued / window_seconds AS arrival_rate,
        window_finished / window_seconds AS completion_rate
      FROM told WHERE has_events)"""
    return f"{_told(keys, span)}, {fading(source, ('arrival_rate', 'completion_rate'), keys, span, window)}"


def depths(keys: Sequence[QueueKey], span: Span) -> str:
    """The broker's own count of each of ``keys`` at the end of each bin, and before the span."""
    return f"""
    {_told(keys, span)}
    SELECT {KEY}, {bin_of(SECOND, span)} AS at, MAX_BY(depth, as_of) AS depth
    FROM told GROUP BY {KEY}, {bin_of(SECOND, span)}
    """


def _told(keys: Sequence[QueueKey], span: Span) -> str:
    """What finished state tells of ``keys`` by the second: an epoch supersedes the others from its first second on, a
    correction what was told of its queue."""
    return f"""
    WITH rows_of_state AS (
      SELECT * FROM queue_state WHERE as_of >= {literal(span.ago(span.end - span.start + _BEFORE))}
    ),
    begins AS (
      SELECT broker, epoch, MIN(second) AS first_second FROM queue_state WHERE corrects IS NULL GROUP BY broker, epoch
    ),
    ends_of_epochs AS (
      SELECT broker, epoch, MIN(first_second) OVER (
        PARTITION BY broker ORDER BY epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
      ) AS superseded_from
      FROM begins
    ),
    corrections AS (
      SELECT broker, queue, revision, MIN(corrects) AS since
      FROM rows_of_state WHERE corrects IS NOT NULL GROUP BY broker, queue, revision
    ),
    standing AS (
      SELECT s.*, ROW_NUMBER() OVER (
        PARTITION BY s.broker, s.queue, s.subscriber, s.second ORDER BY s.epoch DESC, s.revision DESC
      ) AS place
      FROM rows_of_state AS s
      JOIN ends_of_epochs AS e ON e.broker = s.broker AND e.epoch = s.epoch
      WHERE (e.superseded_from IS NULL OR s.second < e.superseded_from)
        AND NOT EXISTS (
          SELECT 1 FROM corrections AS c
          WHERE c.broker = s.broker AND c.queue = s.queue AND c.revision > s.revision AND c.since <= s.second
        )
    ),
    told AS (SELECT * FROM standing WHERE place = 1 AND ({_of_any(keys, null=True)}))"""


def _of_any(keys: Sequence[QueueKey], *, null: bool = False) -> str:
    """The condition under which a row is about one of ``keys``; in tables of gold, the unnamed subscriber is ''."""
    column = "COALESCE(subscriber, '')" if null else "subscriber"
    return of_any(keys, lambda subscriber: f"{column} = {literal(subscriber)}")
