"""What the demo shows, read back from the lake, the broker and the receiver: pure functions over what was recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from sojourn.demo import scenario
from sojourn.demo.broker import StreamReading

#: Quiet tenants have recovered when the p99 of their last ``SETTLED_SECONDS`` seconds stays below this many times what
#: it was before the surge, or below ``RECOVERED_AGE`` seconds, half of what the queue has to keep, if that is more. Far
#: less would be no measure of a limit: a queue whose servers it keeps busy has a p99 of half a second by chance alone.
RECOVERED_AGE = scenario.TARGET_SECONDS / 2
RECOVERED_FACTOR = 2.0
SETTLED_SECONDS = 5
#: What puts a limit in force: a policy, or whoever approved what it proposed.
BEGINNINGS = ("throttle", "approve")


class Queries(Protocol):
    """Whatever answers SQL over the lake."""

    def query(self, sql: str) -> pa.Table:
        """The rows of a SELECT."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Messages by what became of them: the broker's own counts beside those of the lake, over all runs on this lake."""

    published: int
    held: int
    enqueued: int
    completed: int
    dead_lettered: int
    duplicates: int
    finished_twice: int
    rejected: int
    gold_enqueued: int
    gold_finished: int

    @property
    def backlog(self) -> int:
        """Messages that the lake knows of and has not seen leave."""
        return self.enqueued - self.completed - self.dead_lettered

    @property
    def exact(self) -> bool:
        """Whether nothing was lost or doubled, from the broker to the metrics."""
        same = self.enqueued == self.published == self.gold_enqueued and self.backlog == self.held
        same = same and self.gold_finished == self.completed + self.dead_lettered
        return same and not (self.duplicates or self.finished_twice or self.rejected)


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """A first delivery: when (unix seconds), after how many seconds in the queue, and whose message it was."""

    at: float
    age: float
    tenant: str


@dataclass(frozen=True, slots=True)
class Moments:
    """Unix seconds of what was to happen; None for what did not."""

    surge: float
    surge_ends: float
    detected: float | None = None
    webhook: float | None = None
    throttled: float | None = None
    recovered: float | None = None
    resolved: float | None = None
    released: float | None = None


@dataclass(frozen=True, slots=True)
class QuietAges:
    """p99 of the quiet tenants' AgeOfFirstAttempt (seconds) before, during and after the disturbance."""

    before: float | None
    during: float | None
    after: float | None


def balance(queries: Queries, reading: StreamReading) -> Balance:
    """Count the lake's messages, each by its id, and put the broker's own counts beside them."""
    row = queries.query(
        f"""
        SELECT COUNT(*) - COUNT(DISTINCT event_id) AS duplicates,
               COUNT(DISTINCT CASE WHEN event_type = 'enqueued' THEN message_id END) AS enqueued,
               COUNT(DISTINCT CASE WHEN event_type = 'completed' THEN message_id END) AS completed,
               COUNT(DISTINCT CASE WHEN event_type = 'dead_lettered' THEN message_id END) AS dead_lettered,
               COUNT(CASE WHEN event_type IN ('completed', 'dead_lettered', 'expired', 'sidelined') THEN 1 END)
               - COUNT(DISTINCT CASE WHEN event_type IN ('completed', 'dead_lettered', 'expired', 'sidelined')
                                     THEN message_id END) AS finished_twice
        FROM message_events WHERE broker = '{scenario.BROKER}' AND queue = '{scenario.STREAM}'
        """
    ).to_pylist()[0]
    rejected = queries.query("SELECT COALESCE(SUM(count), 0) AS n FROM rejected_records").to_pylist()[0]["n"]
    gold = queries.query(
        f"""
        SELECT COALESCE(SUM(enqueued), 0) AS gold_enqueued,
               COALESCE(SUM(completed + dead_lettered + expired + sidelined), 0) AS gold_finished
        FROM partials WHERE broker = '{scenario.BROKER}' AND queue = '{scenario.STREAM}'
        """
    ).to_pylist()[0]
    counts = {name: int(count) for name, count in (row | gold).items()}
    return Balance(published=reading.published, held=reading.held, rejected=int(rejected), **counts)


def first_attempts(queries: Queries, since: float) -> list[FirstAttempt]:
    """The demo queue's first deliveries since an instant, in order of time."""
    rows = queries.query(
        f"""
        SELECT occurred_at, enqueued_at, tenant FROM message_events
        WHERE event_type = 'received' AND attempt = 1 AND enqueued_at IS NOT NULL AND tenant IS NOT NULL
          AND broker = '{scenario.BROKER}' AND queue = '{scenario.STREAM}'
          AND occurred_at >= TIMESTAMP '{_text(since)}'
        ORDER BY occurred_at
        """
    )
    return [
        FirstAttempt(at.timestamp(), max(0.0, (at - enqueued).total_seconds()), tenant)
        for at, enqueued, tenant in zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True)
    ]


def recovery(quiet: Sequence[FirstAttempt], surge: float, until: float) -> float | None:
    """When the quiet tenants had recovered from the surge: the first instant from which their p99 stayed low.

    None if it was still high when the observation ended at ``until``; the surge's own start if it never rose.
    """
    before = quantile([one.age for one in quiet if one.at < surge], 0.99)
    low = max(RECOVERED_AGE, RECOVERED_FACTOR * (before or 0.0))
    by_second: dict[int, list[float]] = {}
    for one in quiet:
        by_second.setdefault(math.floor(one.at), []).append(one.age)
    last_high: int | None = None
    final = math.floor(until) - 1
    for second in range(math.floor(surge), final + 1):
        ages = [age for back in range(SETTLED_SECONDS) for age in by_second.get(second - back, [])]
        if (p99 := quantile(ages, 0.99)) is not None and p99 > low:
            last_high = second
    if last_high is None:
        return surge
    return None if last_high >= final else float(last_high + 1)


def quiet_ages(quiet: Sequence[FirstAttempt], moments: Moments) -> QuietAges:
    """The p99 before the surge, while it lasts or the quiet have not recovered from it, and from there on."""
    end = math.inf if moments.recovered is None else max(moments.surge_ends, moments.recovered)
    return QuietAges(
        before=quantile([one.age for one in quiet if one.at < moments.surge], 0.99),
        during=quantile([one.age for one in quiet if moments.surge <= one.at < end], 0.99),
        after=quantile([one.age for one in quiet if one.at >= end], 0.99),
    )


def alert_moments(queries: Queries, tenant: str, since: float) -> tuple[float | None, float | None]:
    """When an alert about ``tenant`` first fired, and when the last one that fired was resolved."""
    rows = _rows(queries, "alert_transitions", since)
    of_tenant = [row for row in rows if dict(row["labels"]).get("tenant") == tenant]
    fired = [row for row in of_tenant if row["to_state"] == "firing"]
    gone = [
        row for row in of_tenant if row["to_state"] == "inactive" and row["from_state"] in ("firing", "keep_firing")
    ]
    open_alerts = {row["fingerprint"] for row in fired} - {row["fingerprint"] for row in gone}
    return (
        fired[0]["at"].timestamp() if fired else None,
        gone[-1]["at"].timestamp() if gone and not open_alerts else None,
    )


def to_come(queries: Queries, entries: Iterable[Mapping[str, Any]], tenant: str, since: float) -> list[str]:
    """What is still to come of a surge of ``tenant`` that is over, in words: the end of its alert, the webhook (of
    ``entries``) that tells of it, the end of its limit."""
    found = []
    detected, resolved = alert_moments(queries, tenant, since)
    if detected is not None and resolved is None:
        found.append("the alert to be resolved")
    status: dict[frozenset[tuple[str, str]], str] = {}
    for entry in entries:
        for alert in (entry["payload"] or {}).get("alerts", []) if entry["verified"] else []:
            if alert["labels"].get("tenant") == tenant:
                status[frozenset(alert["labels"].items())] = alert["status"]
    if "firing" in status.values():
        found.append("the webhook that says so")
    if queries.query(f"SELECT 1 AS there FROM limits WHERE tenant = '{tenant}'").num_rows:
        found.append("the limit to end")
    return found


def accused(queries: Queries, since: float) -> set[str]:
    """Every tenant that an alert which fired named."""
    rows = _rows(queries, "alert_transitions", since)
    named = {dict(row["labels"]).get("tenant") for row in rows if row["to_state"] == "firing"}
    return {tenant for tenant in named if tenant}


def enforced(queries: Queries, since: float) -> list[dict[str, Any]]:
    """The actions that took effect, in order."""
    return [row for row in _rows(queries, "actions", since) if row["outcome"] == "applied" and not row["dry_run"]]


def throttled(actions: Iterable[Mapping[str, Any]]) -> set[str]:
    """The tenants that were really limited."""
    return {str(row["tenant"]) for row in actions if row["decision"] in BEGINNINGS}


def webhooks(path: Path, since: float) -> list[dict[str, Any]]:
    """What the receiver wrote since an instant; a last line that is still being written is left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    for entry in entries:
        entry["at"] = datetime.fromisoformat(entry["received_at"]).timestamp()
    return [entry for entry in entries if entry["at"] >= since]


def first_webhook(entries: Iterable[Mapping[str, Any]], tenant: str) -> float | None:
    """When the first well-signed webhook arrived that says that ``tenant`` is the trouble."""
    for entry in entries:
        alerts = (entry["payload"] or {}).get("alerts", []) if entry["verified"] else []
        if any(alert["status"] == "firing" and alert["labels"].get("tenant") == tenant for alert in alerts):
            return float(entry["at"])
    return None


def webhook_delays(queries: Queries, entries: Iterable[Mapping[str, Any]], since: float) -> list[float]:
    """Event → webhook (seconds): each delivery's first arrival − the newest event that its evaluation had seen."""
    seen: dict[str, datetime] = {}
    for row in _rows(queries, "deliveries", since):
        if row["data_as_of"] is not None:
            seen.setdefault(row["delivery_id"], row["data_as_of"])
    arrived: dict[str, float] = {}
    for entry in entries:
        if entry["verified"]:
            arrived.setdefault(str(entry["webhook_id"]), entry["at"])
    return [arrived[name] - as_of.timestamp() for name, as_of in seen.items() if name in arrived]


def quantile(values: Iterable[float], q: float) -> float | None:
    """The ``q``-quantile (nearest rank) of exact values; None of none."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(q * len(ordered))) - 1] if ordered else None


def _rows(queries: Queries, table: str, since: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = queries.query(
        f"SELECT * FROM {table} WHERE at >= TIMESTAMP '{_text(since)}' ORDER BY at"
    ).to_pylist()
    return rows


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
