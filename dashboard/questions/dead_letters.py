"""What is dead-lettered: how much and since when by queue and tenant, and why, as the newest events say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dashboard.queries import KEY, SECOND, bin_of, of_any, of_queue
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from lake.sql.parameters import literal

#: Reasons, and tenants, that are named.
NAMED = 12


def queues(since: datetime) -> str:
    """Each queue that dead-lettered something since then, or whose dead-letter queues hold something: the most first.

    ``first`` and ``last`` are the seconds of the first and the last of them.
    """
    return f"""
    WITH dead AS (
      SELECT
        broker, queue, NULLIF(subscriber, '') AS subscriber, CAST(SUM(dead_lettered) AS BIGINT) AS dead_lettered,
        MIN(CASE WHEN dead_lettered > 0 THEN bucket_start END) AS first,
        MAX(CASE WHEN dead_lettered > 0 THEN bucket_start END) AS last,
        CAST(SUM(completed + dead_lettered + expired + sidelined) AS BIGINT) AS finished
      FROM partials WHERE bucket_start >= {literal(since)} GROUP BY broker, queue, NULLIF(subscriber, '')
    )
    SELECT
      COALESCE(d.broker, h.broker) AS broker, COALESCE(d.queue, h.queue) AS queue,
      COALESCE(d.subscriber, h.subscriber) AS subscriber, d.dead_lettered, d.first, d.last, d.finished,
      h.dlq_depth, h.dead_lettered AS lately
    FROM (SELECT * FROM dead WHERE dead_lettered > 0) AS d
    FULL JOIN (SELECT * FROM queue_health_now WHERE dlq_depth > 0 OR dead_lettered > 0) AS h
      ON h.broker = d.broker AND h.queue = d.queue AND h.subscriber IS NOT DISTINCT FROM d.subscriber
    ORDER BY dead_lettered DESC NULLS LAST, dlq_depth DESC NULLS LAST, broker, queue, subscriber LIMIT 50"""


def tenants(key: QueueKey, since: datetime) -> str:
    """Whose messages of one queue were dead-lettered: the most first."""
    return f"""
    SELECT
      tenant, CAST(SUM(dead_lettered) AS BIGINT) AS dead_lettered, MIN(bucket_start) AS first, MAX(bucket_start) AS last
    FROM partials
    WHERE {_mine(key)} AND dead_lettered > 0 AND bucket_start >= {literal(since)}
    GROUP BY tenant ORDER BY dead_lettered DESC, tenant LIMIT {NAMED}"""


def rates(key: QueueKey, span: Span) -> str:
    """How many were dead-lettered in each bin."""
    second = "(unix_micros(bucket_start) DIV 1000000 + bucket_seconds)"
    return f"""
    SELECT {bin_of(second, span)} AS at, CAST(SUM(dead_lettered) AS BIGINT) AS dead_lettered
    FROM partials
    WHERE {_mine(key)} AND dead_lettered > 0 AND bucket_start >= {literal(span.instants[0])} GROUP BY 1"""


def depths(key: QueueKey, span: Span) -> str:
    """What the queue's dead-letter queues held at the end of each bin."""
    return f"""
    WITH mine AS (
      SELECT {bin_of(SECOND, span)} AS at, as_of, dlq_depth FROM queue_health
      WHERE {of_queue(key)} AND dlq_depth IS NOT NULL
    )
    SELECT at, MAX_BY(dlq_depth, as_of) AS dlq_depth FROM mine GROUP BY at"""


def reasons(keys: Sequence[QueueKey], since: datetime, until: datetime) -> str:
    """Why messages were dead-lettered, from the events of ``since`` to ``until`` and those days' files alone."""
    days = [until.date() - timedelta(days=day) for day in range((until.date() - since.date()).days + 2)]
    named = ", ".join(literal(day) for day in [until.date() + timedelta(days=1), *days])
    return f"""
    WITH dead AS (
      SELECT {KEY}, reason, tenant, message_id, occurred_at FROM message_events
      WHERE ingest_date IN ({named}) AND event_type = 'dead_lettered' AND occurred_at >= {literal(since)}
        AND occurred_at <= {literal(until)} AND ({of_any(keys)})
    )
    SELECT
      {KEY}, reason, COUNT(*) AS messages, COUNT(DISTINCT tenant) AS tenants, MIN(occurred_at) AS first,
      MAX(occurred_at) AS last, MAX_BY(message_id, occurred_at) AS newest
    FROM dead GROUP BY {KEY}, reason ORDER BY messages DESC, reason LIMIT {NAMED}"""


def _mine(key: QueueKey) -> str:
    """Partials name the queue's only consumer by an empty text."""
    plain = of_queue(QueueKey(key.broker, key.queue))
    return plain.replace("subscriber IS NULL", f"subscriber = {literal(key.subscriber)}")
