"""What the metrics say about the queues and tenants that may be acted on: four small SELECTs, one observation each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from sqlglot import exp

from alerts.control.standing import Target
from alerts.laws.throttle import Observation
from lake.clock import ZERO, age

Query = Callable[[str], pa.Table]
_Row = dict[str, Any]
_MICROS = 1_000_000


def observe(
    query: Query, targets: Iterable[Target], now: datetime, recent_seconds: int, ahead: timedelta = ZERO
) -> dict[Target, Observation]:
    """An observation of each target whose queue is in the metrics; several subscribers of a queue count as the worst.

    ``recent_seconds`` is how far back a tenant's arrivals are counted: the views' window would still show, for a
    minute, what came before a limit. Quiet tenants are those neither noisy nor in ``targets``.
    The wall clock is ``ahead`` of ``now``: what comes from the future by both has a negative age.
    """
    targets = sorted(set(targets))
    if not targets:
        return {}
    tenants = _by_queue(query(_tenants_sql(targets)))
    health = _by_queue(query(_health_sql(targets)))
    as_of = {queue[0]: max(row["as_of"] for row in rows) for queue, rows in tenants.items() if rows}
    arrivals: dict[Target, float] = {}
    flows: dict[tuple[str, str], _Row] = {}
    if as_of:
        for row in query(_arrivals_sql(targets, as_of, recent_seconds)).to_pylist():
            arrivals[Target(row["broker"], row["queue"], row["tenant"])] = row["enqueued"] / recent_seconds
        flows = {key: rows[0] for key, rows in _by_queue(query(_flows_sql(targets, as_of, recent_seconds))).items()}
    observations = {}
    for target in targets:
        queue = (target.broker, target.queue)
        backlogs = [row["backlog"] for row in tenants.get(queue, ())]
        if backlogs and None not in backlogs and health.get(queue):  # unknown while history is incomplete
            arrival = arrivals.get(target, 0.0)
            flow = flows.get(queue, {"enqueued": 0.0, "finished": 0.0})
            rates = (arrival, max(0.0, flow["enqueued"] / recent_seconds - arrival), flow["finished"] / recent_seconds)
            observations[target] = _observation(tenants[queue], health[queue], rates, now, ahead)
    return observations


def _observation(
    tenants: list[_Row], health: list[_Row], rates: tuple[float, float, float], now: datetime, ahead: timedelta
) -> Observation:
    """``rates`` are the tenant's arrivals, the others', and what is finished of the queue, a second."""
    # With several subscribers each must be trustworthy and calm, and the slowest one sets the share.
    slowest = min(tenants, key=lambda row: row["completion_rate"] / max(1, row["active_tenants"]))
    newest = [age(row["as_of"], now, ahead).total_seconds() for row in tenants]
    data_age = min(newest) if min(newest) < 0 else max(newest)  # the worst: from the future, or the oldest
    sample_age = _worst([row["staleness_seconds"] for row in health], max)
    return Observation(
        data_age_seconds=data_age,
        sample_age_seconds=None if sample_age is None else sample_age + max(0.0, data_age),
        depth=_worst([row["depth"] for row in health], max),
        coverage=_worst([row["coverage"] for row in health], min),
        backlog=float(max(row["backlog"] for row in tenants)),
        quiet_age_seconds=max(row["quiet_age"] or 0.0 for row in tenants),
        calm=all(row["mode"] == "fast" for row in health),
        completion_rate=slowest["completion_rate"],
        active_tenants=int(slowest["active_tenants"]),
        arrival_rate=rates[0],
        others_rate=rates[1],
        finish_rate=rates[2],
    )


def _worst(values: Sequence[float | None], choose: Callable[[list[float]], float]) -> float | None:
    """The worst of ``values``; unknown if one of them is."""
    known = [value for value in values if value is not None]
    return choose(known) if known and len(known) == len(values) else None


def _by_queue(table: pa.Table) -> dict[tuple[str, str], list[_Row]]:
    rows: dict[tuple[str, str], list[_Row]] = {}
    for row in table.to_pylist():
        rows.setdefault((row["broker"], row["queue"]), []).append(row)
    return rows


def _tenants_sql(targets: Sequence[Target]) -> str:
    return f"""
        SELECT broker, queue, subscriber, MAX(as_of) AS as_of,
          CAST(SUM(backlog) AS BIGINT) AS backlog,
          CAST(SUM(completion_rate) AS DOUBLE) AS completion_rate,
          CAST(SUM(CASE WHEN backlog > 0 OR arrival_rate > 0 THEN 1 ELSE 0 END) AS BIGINT) AS active_tenants,
          MAX(CASE WHEN NOT noisy AND NOT ({_any_of(targets)}) THEN oldest_age_seconds END) AS quiet_age
        FROM tenant_backlog_now WHERE {_any_queue_of(targets)} GROUP BY broker, queue, subscriber"""


def _health_sql(targets: Sequence[Target]) -> str:
    return f"""
        SELECT broker, queue, depth, coverage, staleness_seconds, mode
        FROM queue_health_now WHERE {_any_queue_of(targets)}"""


def _arrivals_sql(targets: Sequence[Target], as_of: dict[str, datetime], recent_seconds: int) -> str:
    return f"""
        SELECT broker, queue, tenant, CAST(SUM(enqueued) AS DOUBLE) AS enqueued FROM partials
        WHERE ({_recent(as_of, recent_seconds)}) AND ({_any_of(targets)}) GROUP BY broker, queue, tenant"""


def _flows_sql(targets: Sequence[Target], as_of: dict[str, datetime], recent_seconds: int) -> str:
    # Of several subscribers the slowest one counts: its consumers are who a tenant could keep busy.
    return f"""
        SELECT broker, queue, SUM(enqueued) AS enqueued,
          COALESCE(MIN(CASE WHEN finished > 0 THEN finished END), 0.0) AS finished
        FROM (
          SELECT broker, queue, subscriber, CAST(SUM(enqueued) AS DOUBLE) AS enqueued,
            CAST(SUM(completed + dead_lettered + expired + sidelined) AS DOUBLE) AS finished
          FROM partials WHERE ({_recent(as_of, recent_seconds)}) AND ({_any_queue_of(targets)})
          GROUP BY broker, queue, subscriber
        ) GROUP BY broker, queue"""


def _recent(as_of: dict[str, datetime], recent_seconds: int) -> str:
    """The whole seconds before the newest one of each broker, which is still filling."""
    spans = []
    for broker, newest in sorted(as_of.items()):
        end = int(newest.timestamp())
        spans.append(
            f"(broker = {_literal(broker)} AND bucket_start >= timestamp_micros({(end - recent_seconds) * _MICROS})"
            f" AND bucket_start < timestamp_micros({end * _MICROS}))"
        )
    return " OR ".join(spans)


def _any_of(targets: Sequence[Target]) -> str:
    return " OR ".join(
        f"(broker = {_literal(t.broker)} AND queue = {_literal(t.queue)} AND tenant = {_literal(t.tenant)})"
        for t in targets
    )


def _any_queue_of(targets: Sequence[Target]) -> str:
    queues = sorted({(target.broker, target.queue) for target in targets})
    return " OR ".join(f"(broker = {_literal(broker)} AND queue = {_literal(queue)})" for broker, queue in queues)


def _literal(text: str) -> str:
    """``text`` as a literal of Spark's dialect: names come from messages, and may hold anything."""
    return exp.Literal.string(text).sql(dialect="spark")
