"""Who takes a queue's capacity and who waits for it: one page of tenants, however many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.queries import KEY, SECOND, bin_of, of_queue
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from lake.sql.parameters import among, literal

#: By what tenants can be ordered, and how.
ORDERS: Mapping[str, str] = {
    "harm": "place, oldest_age_seconds DESC NULLS LAST, backlog DESC NULLS LAST",
    "wait": "oldest_age_seconds DESC NULLS LAST, backlog DESC NULLS LAST",
    "backlog": "backlog DESC NULLS LAST",
    "work": "work DESC NULLS LAST, in_flight DESC NULLS LAST",
    "arrivals": "arrival_rate DESC NULLS LAST",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tenants are asked for: of one queue or all (None), whose names hold ``find``, waiting beyond ``target``."""

    queue: QueueKey | None
    find: str
    target: float


def _told(wanted: Wanted) -> str:
    """Each tenant with its part: noisy; a victim, who waits beyond the target beside one; late; or in time."""
    of = "TRUE" if wanted.queue is None else of_queue(wanted.queue)
    named = f"contains(lower(tenant), lower({literal(wanted.find)}))" if wanted.find else "TRUE"
    late = f"t.oldest_age_seconds > {float(wanted.target)!r}D"
    return f"""
    WITH mine AS (SELECT * FROM tenant_backlog_now WHERE {of} AND {named}),
    work AS (SELECT {KEY}, tenant, littles_law FROM concurrency_now WHERE {of}),
    loud AS (SELECT {KEY}, noisy_tenants FROM queue_health_now WHERE noisy_tenants > 0 AND {of}),
    told AS (
      SELECT
        t.*, w.littles_law AS work,
        CASE
          WHEN t.noisy THEN 0 WHEN {late} AND l.noisy_tenants IS NOT NULL THEN 1 WHEN {late} THEN 2 ELSE 3
        END AS place
      FROM mine AS t
      LEFT JOIN work AS w ON w.broker = t.broker AND w.queue = t.queue
        AND w.subscriber IS NOT DISTINCT FROM t.subscriber AND w.tenant = t.tenant
      LEFT JOIN loud AS l ON l.broker = t.broker AND l.queue = t.queue
        AND l.subscriber IS NOT DISTINCT FROM t.subscriber
    )"""


def counted(wanted: Wanted) -> str:
    """How many tenants there are of each part, and what they have together."""
    return f"""{_told(wanted)}
    SELECT
      COUNT(*) AS tenants, COUNT(CASE WHEN place = 0 THEN 1 END) AS noisy,
      COUNT(CASE WHEN place = 1 THEN 1 END) AS victims,
      MIN(CASE WHEN place = 0 THEN tenant END) AS loudest, COUNT(CASE WHEN place = 2 THEN 1 END) AS late,
      COUNT(DISTINCT broker || queue) AS queues,
      CAST(SUM(backlog) AS BIGINT) AS backlog, SUM(work) AS work, SUM(arrival_rate) AS arrival_rate,
      SUM(CASE WHEN place = 0 THEN work END) AS noisy_work
    FROM told"""


def ranked(wanted: Wanted, order: str, rows: int, page: int) -> str:
    """The ``page``-th (from 1) ``rows`` tenants in ``order``, each with what all of its queue have in flight
    (queue_in_flight)."""
    by = ORDERS.get(order, ORDERS["harm"])
    of = "TRUE" if wanted.queue is None else of_queue(wanted.queue)
    return f"""{_told(wanted)},
    held AS (SELECT {KEY}, SUM(in_flight) AS queue_in_flight FROM tenant_backlog_now WHERE {of} GROUP BY {KEY})
    SELECT t.*, CAST(h.queue_in_flight AS BIGINT) AS queue_in_flight
    FROM told AS t
    LEFT JOIN held AS h ON h.broker = t.broker AND h.queue = t.queue
      AND h.subscriber IS NOT DISTINCT FROM t.subscriber
    ORDER BY {by}, t.tenant, t.broker, t.queue, t.subscriber
    LIMIT {int(rows)} OFFSET {int(rows) * (max(1, int(page)) - 1)}"""


def ages(keys: Sequence[tuple[QueueKey, str]]) -> str:
    """The newest ages of tenants, each named by queue and name: of first attempts and of completions."""
    return f"""
    SELECT {KEY}, tenant, kind, p50_seconds, p99_seconds FROM attempt_age_now
    WHERE kind IN ('first_attempt', 'completion') AND ({_of(keys)})"""


def waits(keys: Sequence[tuple[QueueKey, str]], span: Span) -> str:
    """The p99 of first attempts of each of ``keys`` in each bin, as a histogram's bucket, and how many there were."""
    second = "(unix_micros(bucket_start) DIV 1000000 + bucket_seconds)"
    return f"""
    WITH mine AS (
      SELECT {KEY}, tenant, {bin_of(second, span)} AS at, cell.index AS bucket, cell.count AS n
      FROM attempt_age LATERAL VIEW explode(histogram) x AS cell
      WHERE kind = 'first_attempt' AND bucket_start >= {literal(span.instants[0])} AND ({_of(keys)})
    ),
    cells AS (SELECT {KEY}, tenant, at, bucket, SUM(n) AS n FROM mine GROUP BY {KEY}, tenant, at, bucket),
    ranked AS (
      SELECT
        {KEY}, tenant, at, bucket, SUM(n) OVER (PARTITION BY {KEY}, tenant, at ORDER BY bucket) AS seen,
        SUM(n) OVER (PARTITION BY {KEY}, tenant, at) AS total
      FROM cells
    )
    SELECT {KEY}, tenant, at, MIN(bucket) AS index, CAST(MAX(total) AS BIGINT) AS attempts
    FROM ranked WHERE 100 * seen >= 99 * total GROUP BY {KEY}, tenant, at"""


def backlogs(keys: Sequence[tuple[QueueKey, str]], span: Span) -> str:
    """The backlog of each of ``keys`` at the end of each bin, and before the span."""
    return f"""
    SELECT {KEY}, tenant, {bin_of(SECOND, span)} AS at, MAX_BY(backlog, as_of) AS backlog
    FROM tenant_backlog WHERE {_of(keys)} GROUP BY {KEY}, tenant, {bin_of(SECOND, span)}"""


def _of(keys: Sequence[tuple[QueueKey, str]]) -> str:
    return among("tenant", ((of_queue(key), tenant) for key, tenant in keys))
