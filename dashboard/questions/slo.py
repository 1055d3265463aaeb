"""How fast objectives burn their budgets: by the very windows and counts that their alerts are evaluated with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from alerts.objectives import SloEntry, burned, late_of, lengths_of
from dashboard.queries import bin_of, of_queue
from dashboard.services.keys import QueueKey
from dashboard.services.series import Span
from lake.sql.parameters import literal, with_values

_SEVERITIES: Sequence[str] = ("critical", "warning", "info")


def _told(slo: SloEntry, at: datetime, find: str) -> str:
    keys = ("queue", "subscriber", "tenant") if slo.per == "tenant" else ("queue", "subscriber")
    held = " OR ".join(f"contains(lower(COALESCE({key}, '')), lower({literal(find)}))" for key in keys)
    return f"""
    WITH burns AS ({with_values(burned(slo), {"evaluation_time": at})}),
    told AS (SELECT * FROM burns WHERE {held if find else "TRUE"})"""


def counted(slo: SloEntry, at: datetime, find: str) -> str:
    """How many the objective is for, how many of them burn too fast, and how many have spent their budget."""
    period = lengths_of(slo)[-1]
    by = ", ".join(f"COUNT(CASE WHEN severity = '{name}' THEN 1 END) AS {name}" for name in _SEVERITIES)
    return f"""{_told(slo, at, find)}
    SELECT COUNT(*) AS them, {by}, COUNT(CASE WHEN burn_{period} >= 1 THEN 1 END) AS spent FROM told"""


def ranked(slo: SloEntry, at: datetime, find: str, rows: int, page: int) -> str:
    """The ``page``-th (from 1) ``rows`` of them: whoever alerts, then who has least budget left."""
    *windows, period = lengths_of(slo)
    loud = " ".join(f"WHEN severity = '{name}' THEN {place}" for place, name in enumerate(_SEVERITIES))
    return f"""{_told(slo, at, find)}
    SELECT * FROM told
    ORDER BY CASE {loud} ELSE 9 END, burn_{period} DESC NULLS LAST, burn_{windows[0]} DESC NULLS LAST,
      broker, queue, subscriber{", tenant" if slo.per == "tenant" else ""}
    LIMIT {int(rows)} OFFSET {int(rows) * (max(1, int(page)) - 1)}"""


def over_time(slo: SloEntry, key: QueueKey, tenant: str | None, span: Span) -> str:
    """What was attempted and late in each bin, of one queue or one of its tenants."""
    second = "(unix_micros(bucket_start) DIV 1000000 + bucket_seconds)"
    one = "TRUE" if tenant is None else f"tenant = {literal(tenant)}"
    return f"""
    SELECT {bin_of(second, span)} AS at, CAST(SUM(count) AS BIGINT) AS attempts,
      CAST(SUM({late_of(slo)}) AS BIGINT) AS late
    FROM attempt_age
    WHERE {of_queue(key)} AND {one} AND kind = {literal(slo.kind)} AND bucket_start >= {literal(span.instants[0])}
    GROUP BY 1"""
