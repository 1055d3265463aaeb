"""The SELECTs that ask the metrics for queues and tenants, and how names get into them.

However many tenants there are, the statements stay as short: names go into them as one literal. Where they are too many
for that, or hold what no statement may, each tenant's row comes back.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from sqlglot import exp

from alerts.control.active_limit import Target
from alerts.control.signals import PROBE, PROBE_STALE
from lake.errors import UserError
from lake.sql.lexical import scan

_MICROS = 1_000_000
#: Characters of names that one statement holds; the lake's gate takes 64 KiB of SQL, and twice what is quoted.
MOST_NAMED = 16_000


@dataclass(frozen=True, slots=True)
class Scope:
    """What the statements say of whom they are about.

    ``only`` joins the queues that are wanted, by name. ``named`` joins the tenants that are, so that ``tenant`` is the
    name of one of them, or null; where a statement cannot hold their names, ``tenant`` is each tenant's own.
    """

    only: str
    named: str
    tenant: str

    @classmethod
    @lru_cache(16)  # mostly the same ones look after look
    def of(cls, targets: frozenset[Target], names: frozenset[str]) -> Scope:
        named = names_table(names, "wanted_tenant")
        return cls(
            of_queues({target.queue for target in targets}),
            f"LEFT JOIN {named} ON tenant = wanted_tenant" if named else "",
            "wanted_tenant" if named else "tenant",
        )


def of_queues(names: AbstractSet[str]) -> str:
    """The join that leaves rows of these queues alone; nothing, so that all rows come, where no statement holds it."""
    table = names_table(names, "wanted_queue")
    return f"JOIN {table} ON queue = wanted_queue" if table else ""


def names_table(names: AbstractSet[str], column: str) -> str | None:
    """``names`` as a table of one ``column``, written as a single literal; None where a statement cannot hold it."""
    together = "".join(names)
    # Names come from messages and may hold anything; among so many characters one is in none of them.
    separator = next((chr(code) for code in range(0xE000, 0xF900) if chr(code) not in together), None)
    if separator is None or len(together) + len(names) > MOST_NAMED:
        return None
    packed = literal(separator.join(sorted(names)))
    return packed and f"(SELECT explode(split({packed}, '{separator}')) AS {column})"


def tenants(scope: Scope) -> str:
    """What waits of each tenant, comes and is finished, by subscriber; who has all in hand, or put off, waits for
    nobody, however old it is."""
    return f"""
        SELECT broker, queue, subscriber, {scope.tenant} AS target, MAX(as_of) AS as_of,
          CAST(SUM(backlog) AS BIGINT) AS backlog, CAST(SUM(ready) AS BIGINT) AS ready,
          CAST(SUM(completion_rate) AS DOUBLE) AS completion_rate,
          CAST(SUM(arrival_rate) AS DOUBLE) AS arrival_rate,
          CAST(SUM(CASE WHEN backlog > 0 OR arrival_rate > 0 THEN 1 ELSE 0 END) AS BIGINT) AS active_tenants,
          MAX(CASE WHEN NOT noisy AND ready > 0 THEN oldest_age_seconds END) AS quiet_age,
          MAX(CASE WHEN ready > 0 THEN oldest_age_seconds END) AS oldest_age,
          CAST(SUM(CASE WHEN NOT noisy THEN ready END) AS BIGINT) AS quiet_ready
        FROM tenant_backlog_now {scope.only} {scope.named} GROUP BY broker, queue, subscriber, {scope.tenant}"""


def health(scope: Scope) -> str:
    """How far each queue can be trusted."""
    return f"""
        SELECT broker, queue, depth, coverage, staleness_seconds, mode
        FROM queue_health_now {scope.only}"""


def flows(
    scope: Scope, as_of: dict[str, datetime], recent_seconds: int, usual_seconds: int = 0, brief_seconds: int = 0
) -> str:
    """What came, began and was finished in the last seconds, and over a longer time and a shorter one where those are
    asked for: of what began, the oldest at its first attempt.

    The last seconds end with the newest instant; they begin within a second, of which so much counts as the one that
    fills is short of.
    """
    finished = "completed + dead_lettered + expired + sidelined"
    lately = recent(as_of, recent_seconds, filling=True)
    columns = {"enqueued": "enqueued", "finished": finished, "work": "processing_sum"}

    def within(span: str, name: str = "") -> dict[str, str]:
        return {name + column: f"CASE WHEN {span} THEN {what} ELSE 0 END" for column, what in columns.items()}

    def counted(seconds: int, those: dict[str, str]) -> str:
        part = _part_of_first(as_of, seconds)
        return ", ".join(f"CAST(SUM(({what}){part}) AS DOUBLE) AS {name}" for name, what in those.items())

    sums = counted(recent_seconds, within(lately) if usual_seconds else columns)
    began = f"MAX(CASE WHEN {lately} THEN first_attempt_age_max END) AS first_age"
    brief = usual = ""
    if brief_seconds:
        brief = "," + counted(brief_seconds, within(recent(as_of, brief_seconds, filling=True), "brief_"))
    if usual_seconds:
        usual = f""",
          CAST(SUM(enqueued) AS DOUBLE) AS usually_enqueued, CAST(SUM({finished}) AS DOUBLE) AS usually_finished,
          MIN(bucket_start) AS since"""
    return f"""
        SELECT broker, queue, subscriber, {scope.tenant} AS target, {sums}, {began}{brief}{usual}
        FROM partials {scope.only} {scope.named}
        WHERE {recent(as_of, usual_seconds, filling=True) if usual_seconds else lately}
        GROUP BY broker, queue, subscriber, {scope.tenant}"""


def deliveries(scope: Scope, as_of: dict[str, datetime], seconds: float, recent_seconds: int) -> str:
    """How attempts ended over ``seconds``, and how many of late."""
    ended = "completed + GREATEST(failed, dead_lettered)"
    return f"""
        SELECT broker, queue, subscriber, {scope.tenant} AS target,
          CAST(SUM(completed) AS DOUBLE) AS completed, CAST(SUM(failed) AS DOUBLE) AS failed,
          CAST(SUM(dead_lettered) AS DOUBLE) AS dead_lettered,
          CAST(SUM(CASE WHEN {recent(as_of, recent_seconds)} THEN {ended} ELSE 0 END) AS DOUBLE) AS recent
        FROM partials {scope.only} {scope.named}
        WHERE {recent(as_of, math.ceil(seconds))} GROUP BY broker, queue, subscriber, {scope.tenant}"""


def work(scope: Scope) -> str:
    """How long work takes at each subscriber, and how much of it is in hand and may be."""
    return f"""
        SELECT broker, queue, {scope.tenant} AS target, CAST(MAX(mean_processing_seconds) AS DOUBLE) AS seconds,
          CAST(MAX(concurrency_limit) AS DOUBLE) AS bound, CAST(SUM(in_flight) AS DOUBLE) AS in_work
        FROM concurrency_now {scope.only} {scope.named} GROUP BY broker, queue, {scope.tenant}"""


def prefetch(scope: Scope) -> str:
    """How many messages each queue's consumers may have in hand."""
    return f"""
        SELECT broker, queue, CAST(MAX(prefetch) AS DOUBLE) AS prefetch
        FROM queue_health_now {scope.only} GROUP BY broker, queue"""


def publishing(scope: Scope, brokers: AbstractSet[str], now: datetime, seconds: float) -> str:
    """What applications, and each broker's probe, told of publishes; ``now`` is the wall clock's."""
    since = int((now.timestamp() - seconds - PROBE_STALE) * _MICROS)
    names = ", ".join(name for name in map(literal, sorted(brokers)) if name is not None)
    columns = "broker, queue, sampled_at, publish_latency_seconds AS latency"
    within = f"broker IN ({names}) AND sampled_at >= timestamp_micros({since})"
    return f"""
        SELECT {columns}, state, NULL AS publishes, NULL AS errors FROM queue_samples
        WHERE queue = {literal(PROBE)} AND {within}
        UNION ALL
        SELECT {columns}, NULL AS state, publishes, publish_errors AS errors FROM queue_samples {scope.only}
        WHERE publishes IS NOT NULL AND {within}"""


def recent(as_of: dict[str, datetime], recent_seconds: int, *, filling: bool = False) -> str:
    """The whole seconds before the newest one of each broker; with that one, as far as it is ``filling``."""
    spans = []
    for broker, newest in sorted(as_of.items()):
        begin = int(newest.timestamp()) - recent_seconds
        end = begin + recent_seconds + (filling and newest.microsecond > 0)
        spans.append(
            f"(broker = {literal(broker)} AND bucket_start >= timestamp_micros({begin * _MICROS})"
            f" AND bucket_start < timestamp_micros({end * _MICROS}))"
        )
    return " OR ".join(spans)


def _part_of_first(as_of: dict[str, datetime], recent_seconds: int) -> str:
    """By what a second's counts are multiplied, so that all that :func:`recent` has are of ``recent_seconds``."""
    cases = [
        f"WHEN broker = {literal(broker)}"
        f" AND bucket_start < timestamp_micros({(int(newest.timestamp()) - recent_seconds + 1) * _MICROS})"
        f" THEN 1 - {round(newest.timestamp() * _MICROS)} % {_MICROS} / 1e6"
        for broker, newest in sorted(as_of.items())
        if newest.microsecond
    ]
    return f" * CASE {' '.join(cases)} ELSE 1.0 END" if cases else ""


def since_second(as_of: dict[str, datetime], seconds: int) -> str:
    """The newest second of each broker, which is still filling, and so many whole ones before it."""
    spans = []
    for broker, newest in sorted(as_of.items()):
        start = (int(newest.timestamp()) - seconds) * _MICROS
        spans.append(f"(broker = {literal(broker)} AND bucket_start >= timestamp_micros({start}))")
    return " OR ".join(spans)


@lru_cache(1_000)
def literal(text: str) -> str | None:
    """``text`` as a literal of Spark's dialect; None where the gate before the lake would refuse it.

    Names come from messages, and may hold anything: one of them must not stop what is decided about the others.
    """
    literal = exp.Literal.string(text).sql(dialect="spark")
    try:
        scan(f"SELECT {literal}")
    except UserError:
        return None
    return str(literal)
