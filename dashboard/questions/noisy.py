"""How a tenant that was called noisy stands beside the rest of its queue now."""

from __future__ import annotations

from dashboard.queries import KEY, of_queue
from dashboard.services.keys import QueueKey
from lake.sql.parameters import literal


def beside_others(key: QueueKey, tenant: str) -> str:
    """One row: what the tenant has of work (mean messages being worked on), in flight and backlog, and what all of the
    queue have; what of others is ready; how many tenants take part."""
    mine = f"tenant = {literal(tenant)}"
    return f"""
    WITH work AS (SELECT {KEY}, tenant, littles_law FROM concurrency_now WHERE {of_queue(key)}),
    told AS (
      SELECT t.*, w.littles_law AS work
      FROM (SELECT * FROM tenant_backlog_now WHERE {of_queue(key)}) AS t
      LEFT JOIN work AS w ON w.tenant = t.tenant
    )
    SELECT
      COUNT(CASE WHEN {mine} THEN 1 END) AS known,
      MAX(CASE WHEN {mine} THEN work END) AS work, SUM(work) AS queue_work,
      MAX(CASE WHEN {mine} THEN in_flight END) AS in_flight, CAST(SUM(in_flight) AS BIGINT) AS queue_in_flight,
      MAX(CASE WHEN {mine} THEN backlog END) AS backlog, CAST(SUM(backlog) AS BIGINT) AS queue_backlog,
      CAST(SUM(CASE WHEN NOT ({mine}) THEN ready END) AS BIGINT) AS others_ready,
      COUNT(CASE WHEN backlog > 0 THEN 1 END) AS active_tenants
    FROM told
    """
