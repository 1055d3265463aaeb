"""Tenants that count as one: who began to send when, and what those of a group have together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from dashboard.queries import KEY, of_queue
from dashboard.services.groups import Group
from dashboard.services.keys import QueueKey
from lake.sql.parameters import any_of, literal
from sojourn.client.groups import FORGET_SECONDS

#: For how long groups are looked for, and how many beginnings are looked at.
LOOK, MOST = timedelta(hours=1), 20_000


def beginnings(queue: QueueKey | None, as_of: datetime) -> str:
    """Who began to send when (unix second), after as long a silence as makes one new: the newest, in order of time.

    Tenants are told once, whoever subscribes.
    """
    of = "TRUE" if queue is None else of_queue(QueueKey(queue.broker, queue.queue))
    of = of.replace("subscriber IS NULL", "TRUE")
    since = as_of - LOOK - timedelta(seconds=FORGET_SECONDS)
    return f"""
    WITH sent AS (
      SELECT broker, queue, tenant, unix_micros(bucket_start) DIV 1000000 AS at FROM partials
      WHERE enqueued > 0 AND bucket_start >= {literal(since)} AND {of}
    ),
    told AS (
      SELECT broker, queue, tenant, at, at - LAG(at) OVER (PARTITION BY broker, queue, tenant ORDER BY at) AS silence
      FROM sent
    )
    SELECT broker, queue, tenant, at FROM told WHERE silence IS NULL OR silence >= {FORGET_SECONDS:.0f}
    ORDER BY at DESC, broker, queue, tenant LIMIT {MOST}"""


def sending(queue: QueueKey | None) -> str:
    """Who sends now."""
    of = "TRUE" if queue is None else of_queue(queue)
    return f"SELECT DISTINCT broker, queue, tenant FROM tenant_backlog_now WHERE arrival_rate > 0 AND {of}"


def sums(groups: Sequence[Group]) -> str:
    """What the tenants of each group have together, and the backlog of its queue; by the group's ``place``."""
    return " UNION ALL ".join(_sums(place, group) for place, group in enumerate(groups))


def _sums(place: int, group: Group) -> str:
    if group.pattern is not None:
        beginning = group.pattern[:-1]
        inside = f"substring(tenant, 1, {len(beginning)}) = {literal(beginning)}"
    else:
        inside = f"tenant IN ({any_of(group.members)})"
    return f"""
    SELECT
      {place} AS place, {KEY}, MAX(as_of) AS as_of, COUNT(CASE WHEN {inside} THEN 1 END) AS tenants,
      COUNT(CASE WHEN {inside} AND noisy THEN 1 END) AS noisy,
      CAST(SUM(CASE WHEN {inside} THEN backlog END) AS BIGINT) AS backlog, CAST(SUM(backlog) AS BIGINT) AS whole,
      CAST(SUM(CASE WHEN {inside} THEN in_flight END) AS BIGINT) AS in_flight,
      MAX(CASE WHEN {inside} THEN oldest_age_seconds END) AS oldest_age_seconds,
      SUM(CASE WHEN {inside} THEN arrival_rate END) AS arrival_rate,
      SUM(CASE WHEN {inside} THEN completion_rate END) AS completion_rate, SUM(arrival_rate) AS all_arrivals,
      MIN(CASE WHEN {inside} THEN tenant END) AS first, MAX(CASE WHEN {inside} THEN tenant END) AS last
    FROM tenant_backlog_now
    WHERE broker = {literal(group.broker)} AND queue = {literal(group.queue)} GROUP BY {KEY}"""
