"""What the law of waiting asks of a lake: flows of one queue from its partials, and what waits there now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lake.definitions import LONGEST_LEASE_SECONDS
from lake.sql.parameters import among, any_of, literal
from lake.why.held import Hold, with_holds
from lake.why.law import Bin, Cause, Rise, explain
from lake.why.partitions import Partition, with_one_partition

#: How far back the beginning is looked for, and how finely (seconds).
SPAN, STEP = 3600, 5
#: Whether messages tell of partitions is seen by those of so many seconds.
PROBED = 60

#: A queue by its broker, its name and the subscriber that it is seen by; '' where there is none.
Name = tuple[str, str, str]
#: The rows of a statement in Spark's dialect.
Query = Callable[[str], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Flow:
    """How many messages a second a tenant sent before and since the waiting began."""

    tenant: str
    before: float
    since: float


@dataclass(frozen=True, slots=True)
class Told:
    """What can be said of a queue. ``reason``: why there is no rise to explain, in words; empty where there is one.

    ``ready``: messages that wait now, ``coverage``: the part of them that events tell of, ``margin``: messages from the
    oldest unread one to what the broker's retention deletes; None is unknown. ``sql`` has the statements behind each
    figure.
    """

    as_of: datetime
    ready: int | None
    coverage: float | None
    rise: Rise | None
    tenants: tuple[Flow, ...]
    reason: str
    sql: Mapping[str, str]
    margin: int | None = None
    #: The one that ``rise`` blames, where it blames one.
    partition: str = ""
    #: Limits of this queue's tenants that were in force since the waiting began.
    holds: tuple[Hold, ...] = ()


def behind(cause: Cause) -> str:
    """The name, among a :class:`Told`'s statements, of the one that a part's figures come from."""
    return _BEHIND.get(cause, "flows")


def tell(query: Query, broker: str, queue: str, subscriber: str = "", *, span: int = SPAN) -> Told | None:
    """Why first attempts on the queue wait as they do, looking back ``span`` seconds; None where nobody knows it."""
    who = f"broker = {literal(broker)} AND queue = {literal(queue)}"
    mine = f"{who} AND COALESCE(subscriber, '') = {literal(subscriber)}"
    sql = {"ready": _READY.format(mine=mine, health=mine)}
    rows = query(sql["ready"])
    if not rows or rows[0]["as_of"] is None:
        return None
    [row] = rows
    as_of = row["as_of"].astimezone(UTC)
    end = int(as_of.timestamp()) + 1
    theirs = f"{who} AND subscriber IN ('', {literal(subscriber)})"
    holds, sql["limits"] = holds_of(query, who, end - span, end)
    bins, sql["flows"] = flows(query, broker, queue, subscriber, end, span)
    ready = row["ready"]
    rise = None if ready is None or not bins else explain(bins, ready)
    tenants: tuple[Flow, ...] = ()
    partition = ""
    if rise is not None:
        holds = [one for one in holds if one.ended > rise.begun]
        rise, holds = _of_holds(query, theirs, mine, subscriber, rise, bins, holds, sql)
        rise, partition = _of_partitions(query, who, queue, subscriber, rise, sql)
        sql["tenants"] = _TENANTS.format(
            mine=theirs, start=_at(bins[0].end - bins[0].seconds), begun=_at(rise.begun), end=_at(end)
        )
        early, late = rise.begun - bins[0].end + bins[0].seconds, rise.end - rise.begun
        tenants = tuple(
            Flow(each["tenant"], each["before"] / early, each["since"] / late) for each in query(sql["tenants"])
        )
    reason = _reason(ready, bins, rise)
    margin = row["margin"]
    return Told(as_of, ready, row["coverage"], rise, tenants, reason, sql, margin, partition, tuple(holds))


def holds_of(query: Query, who: str, start: int, end: int) -> tuple[list[Hold], str]:
    """Limits that were in force on the queue at some time between these unix seconds, by tenant, and the statement."""
    sql = _LIMITS.format(mine=who, start=_at(start - LONGEST_LEASE_SECONDS), end=_at(end))
    found: dict[str, Hold] = {}
    for row in query(sql):
        at, before = row["at"].timestamp(), found.get(row["action_id"])
        if row["rate"] is None:
            if before is not None:
                found[row["action_id"]] = replace(before, ended=min(at, before.ended))
        elif before is None or before.ended < at:
            found[row["action_id"]] = Hold(
                row["tenant"], row["actuator"], at, row["valid_until"].timestamp(), bool(row["in_queue"]), row["rate"]
            )
        else:  # renewed, or another rate
            found[row["action_id"]] = replace(before, ended=row["valid_until"].timestamp(), rate=row["rate"])
    there = [one for one in found.values() if one.ended > start]
    return sorted(there, key=lambda one: (not one.in_queue, one.tenant, one.begun)), sql


def _of_holds(
    query: Query,
    theirs: str,
    mine: str,
    subscriber: str,
    rise: Rise,
    bins: Sequence[Bin],
    holds: list[Hold],
    sql: dict[str, str],
) -> tuple[Rise, list[Hold]]:
    """What limits that slow down this queue's consumers have to do with a ``rise``; and the ``holds`` without those of
    tenants whose messages another subscriber has."""
    tenants = sorted({one.tenant for one in holds if one.in_queue})
    if not tenants:
        return rise, holds
    held, first = f"tenant IN ({any_of(tenants)})", bins[0].end - bins[0].seconds
    statement = _FLOWS.format(mine=f"{theirs} AND {held}", start=_at(first), end=_at(rise.end))
    rows = [_as_seen(row, subscriber) for row in query(statement)]
    if not rows:
        return rise, [one for one in holds if not one.in_queue]
    if not rise.parts:
        return rise, holds
    known = {each.end: each for each in _bins(rows, rise.end, bins[0].seconds)}
    flows_of_held = [known.get(each.end, Bin(each.end, each.seconds)) for each in bins]
    (waits,) = query(_READY.format(mine=f"{mine} AND NOT {held}", health=mine))
    found = with_holds(rise, bins, flows_of_held, waits["ready"] or 0, holds)
    if found is not rise:
        sql["held"] = statement
    return found, holds


def _of_partitions(
    query: Query, who: str, queue: str, subscriber: str, rise: Rise, sql: dict[str, str]
) -> tuple[Rise, str]:
    """What one partition has to do with a ``rise`` for want of slots, and which one it is, where messages tell."""
    if not any(each.cause is Cause.SLOTS and each.seconds > 0 for each in rise.parts):
        return rise, ""
    mine = _OF_PARTITIONS.format(who=who, subscriber=literal(subscriber), prefix=literal(f"{queue}."))
    late = {"mine": mine, "start": _at(rise.end - PROBED), "end": _at(rise.end)}
    if not query(
        _ANY_PARTITION.format(**late)
    ):  # most queues have none: their events of an hour are not looked through
        return rise, ""
    statement = _PARTITIONS.format(mine=mine, start=_at(rise.begun), end=_at(rise.end))
    found = with_one_partition(rise, (Partition(**row) for row in query(statement)))
    if found[1]:
        sql["partitions"] = statement
    return found


def flows(query: Query, broker: str, queue: str, subscriber: str, end: int, span: int) -> tuple[list[Bin], str]:
    """What arrived, began and ended in the ``span`` seconds before the unix second ``end``, the oldest first; and the
    statement behind it."""
    theirs = f"broker = {literal(broker)} AND queue = {literal(queue)} AND subscriber IN ('', {literal(subscriber)})"
    sql = _FLOWS.format(mine=theirs, start=_at(end - span), end=_at(end))
    return _bins([_as_seen(row, subscriber) for row in query(sql)], end), sql


def flows_of_all(query: Query, ends: Mapping[Name, int], span: int) -> dict[Name, list[Bin]]:
    """:func:`flows` of many queues, by broker, queue and subscriber, each up to its own unix second, by one statement;
    UserError where no statement can name one of them."""
    if not ends:
        return {}
    theirs = among("queue", ((f"broker = {literal(broker)}", queue) for broker, queue, _ in ends))
    sql = _FLOWS.format(mine=f"({theirs})", start=_at(min(ends.values()) - span), end=_at(max(ends.values())))
    by_queue: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in query(sql):
        by_queue.setdefault((row["broker"], row["queue"]), []).append(row)
    return {
        (broker, queue, subscriber): _bins(
            [
                _as_seen(row, subscriber)
                for row in by_queue.get((broker, queue), ())
                if row["subscriber"] in ("", subscriber) and end - span <= row["second"] < end
            ],
            end,
        )
        for (broker, queue, subscriber), end in ends.items()
    }


def _as_seen(row: Mapping[str, Any], subscriber: str) -> Mapping[str, Any]:
    """What ``subscriber`` sees of a row: whatever is published, and of the rest its own."""
    return row if row["subscriber"] == subscriber else {**row, **dict.fromkeys(_SUMS[1:], 0.0)}


def _reason(ready: int | None, bins: list[Bin], rise: Rise | None) -> str:
    if rise is not None:
        return ""
    if ready is None and not bins:
        return "no message events of this queue are seen; a tap, the receiver or sojourn.Recorder tells them"
    if ready is None:
        return "what waits is unknown while events of before are still being read"
    if not any(each.starts for each in bins):
        return "no first attempt began in this time"
    if not any(each.starts for each in bins[-2:]):
        return "it stands still: no first attempt began in the last seconds"
    return "too little is known of before"


def _bins(rows: Sequence[Mapping[str, Any]], end: int, least: int = STEP) -> list[Bin]:
    """The flows in bins of one length, ``least`` seconds or what the coarsest row has, without holes: where nothing
    happened there is a bin of nothing."""
    if not rows:
        return []
    step = max(least, *(row["coarsest"] for row in rows))
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        sums = found.setdefault((end - 1 - row["second"]) // step, dict.fromkeys(_SUMS, 0.0))
        for name in _SUMS:
            sums[name] += row[name] or 0.0
    return [Bin(end - place * step, step, **found.get(place, {})) for place in range(max(found), -1, -1)]


#: What another statement than that of flows tells of.
_BEHIND = {Cause.PARTITION: "partitions", Cause.THROTTLED: "held"}
_SUMS = ("arrivals", "starts", "retries", "ended", "busy_seconds", "waited_seconds", "waited")
_READY = """
SELECT MAX(h.as_of) AS as_of, CAST(SUM(t.ready) AS BIGINT) AS ready, MAX(h.coverage) AS coverage,
  MIN(h.retention_margin) AS margin
FROM (SELECT * FROM queue_health_now WHERE {health}) AS h
LEFT JOIN (SELECT * FROM tenant_backlog_now WHERE {mine}) AS t ON TRUE
"""
_LIMITS = """
SELECT at, action_id, actuator, tenant, after AS rate, valid_until, inputs['slows'] = 'consumers' AS in_queue
FROM actions
WHERE {mine} AND tenant IS NOT NULL AND NOT dry_run AND at >= {start} AND at < {end}
  AND decision <> 'receipt' AND (after IS NULL OR (outcome = 'applied' AND valid_until IS NOT NULL))
ORDER BY at, action_id
"""
_FLOWS = """
SELECT
  broker, queue, subscriber,
  unix_micros(bucket_start) DIV 1000000 AS second,
  MAX(bucket_seconds) AS coarsest,
  CAST(SUM(enqueued) AS DOUBLE) AS arrivals,
  CAST(SUM(started) AS DOUBLE) AS starts,
  CAST(SUM(retries) AS DOUBLE) AS retries,
  CAST(SUM(processing_count) AS DOUBLE) AS ended,
  SUM(processing_sum) AS busy_seconds,
  SUM(first_attempt_age_sum) AS waited_seconds,
  CAST(SUM(first_attempt_age_count) AS DOUBLE) AS waited
FROM partials
WHERE {mine} AND bucket_start >= {start} AND bucket_start < {end}
GROUP BY broker, queue, subscriber, unix_micros(bucket_start) DIV 1000000
ORDER BY second, subscriber
"""
#: Messages that Kafka's place names: topic.partition.offset.
_OF_PARTITIONS = (
    "{who} AND COALESCE(subscriber, '') IN ('', {subscriber}) AND event_type IN ('enqueued', 'received') "
    "AND startswith(message_id, {prefix}) AND message_id RLIKE '[.][0-9]+[.][0-9]+$'"
)
_ANY_PARTITION = (
    "SELECT 1 AS there FROM message_events WHERE {mine} AND occurred_at >= {start} AND occurred_at < {end} LIMIT 1"
)
_PARTITIONS = """
SELECT
  regexp_extract(message_id, '[.]([0-9]+)[.][0-9]+$', 1) AS name,
  CAST(SUM(CASE WHEN event_type = 'enqueued' THEN 1 ELSE 0 END) AS DOUBLE) AS arrivals,
  CAST(SUM(CASE WHEN event_type = 'received' AND COALESCE(attempt, 1) = 1 THEN 1 ELSE 0 END) AS DOUBLE) AS starts
FROM message_events
WHERE {mine} AND occurred_at >= {start} AND occurred_at < {end}
GROUP BY regexp_extract(message_id, '[.]([0-9]+)[.][0-9]+$', 1)
ORDER BY name
"""
_TENANTS = """
SELECT
  tenant,
  CAST(SUM(CASE WHEN bucket_start < {begun} THEN enqueued ELSE 0 END) AS DOUBLE) AS before,
  CAST(SUM(CASE WHEN bucket_start >= {begun} THEN enqueued ELSE 0 END) AS DOUBLE) AS since
FROM partials
WHERE {mine} AND bucket_start >= {start} AND bucket_start < {end}
GROUP BY tenant
ORDER BY since DESC, tenant
LIMIT 5
"""


def _at(second: int) -> str:
    return literal(datetime.fromtimestamp(second, UTC))
