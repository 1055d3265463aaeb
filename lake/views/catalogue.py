"""All views in the order in which they build on one another, and how their SQL is completed for a lake."""

from __future__ import annotations

from importlib import resources
from string import Template

from lake.definitions import Definitions
from lake.histogram import BASE, BUCKETS_PER_OCTAVE, ZERO_INDEX
from lake.views import columns
from lake.views.model import Column, View

#: Tables of finished state, and what names the things that their rows tell of.
_NAMES = {
    "queue_state": "s.broker, s.queue, s.subscriber",
    "tenant_state": "s.broker, s.queue, s.subscriber, s.tenant",
}
#: Of each table of finished state the newest row of each key, by the name of that view.
NEWEST = tuple(f"{table}_now" for table in (*_NAMES, "age_state"))
#: Every row of history, or every bucket, by the name of that view.
HISTORY = tuple(f"{table}_past" for table in (*_NAMES, "age_state"))
#: By which columns the newest row of a key is told, the first one first. Two seconds can end at one data time; of ages
#: the newest revision has the newest bucket, which may be older than one of which nothing is left.
NEWEST_BY = {"age_state": ("revision", "second")}
NEWEST_BY_DEFAULT = ("as_of", "second", "revision")


def bucket_value_sql(index: str) -> str:
    """SQL for :func:`lake.histogram.bucket_value` of the integer expression ``index``."""
    power = f"POWER(CAST(2 AS DOUBLE), CAST({index} + 1 AS DOUBLE) / CAST({BUCKETS_PER_OCTAVE} AS DOUBLE))"
    scale = 2 / (BASE + 1)
    return (
        f"CASE WHEN {index} <= {ZERO_INDEX} THEN CAST(0 AS DOUBLE) "
        f"WHEN {index} IS NOT NULL THEN CAST({scale!r} AS DOUBLE) * {power} END"
    )


def _age_of(second: str) -> str:
    """SQL for the age, at the row's data time, of a message enqueued in unix second ``second``."""
    micros = f"CAST(as_of_us - {second} * 1000000 AS DOUBLE) / CAST(1000000 AS DOUBLE)"
    return f"CASE WHEN {second} IS NOT NULL THEN GREATEST(CAST(0 AS DOUBLE), {micros}) END"


_DRAIN_STATE = (
    "CASE WHEN backlog IS NULL THEN NULL WHEN backlog = 0 THEN 'idle' WHEN completion_rate = 0 THEN 'stalled' "
    "WHEN arrival_rate >= completion_rate THEN 'growing' ELSE 'draining' END"
)
_DRAIN_ETA = (
    "CASE WHEN backlog > 0 AND completion_rate > arrival_rate "
    "THEN CAST(backlog AS DOUBLE) / (completion_rate - arrival_rate) END"
)

#: How far events can be trusted: what they said was there when the broker told what it had, by that.
_COVERAGE = (
    "CASE WHEN there > 0 THEN CAST(backlog_when_sampled AS DOUBLE) / CAST(there AS DOUBLE) "
    "WHEN there = 0 AND backlog_when_sampled = 0 THEN CAST(1 AS DOUBLE) END"
)

# Without events: how what the broker holds changed from sample to sample, and what was acknowledged if it says so.
# Where it does not, and as many are there as before: as many left, if the oldest came between samples.
# Where none waits, an age of 0 says just that; any other is that of those at work.
_REPLACED = "COALESCE((depth > 0 OR told_age_seconds > 0) AND told_age_seconds * 1000000 < there_us, FALSE)"
_SAMPLED_DRAIN_STATE = (
    "CASE WHEN there = 0 THEN 'idle' WHEN there_change < 0 THEN 'draining' "
    f"WHEN acked = 0 OR (acked IS NULL AND there_change = 0 AND NOT {_REPLACED}) "
    "THEN CASE WHEN there_change IS NOT NULL THEN 'stalled' END "
    "WHEN there_change >= 0 THEN 'growing' END"
)
_SAMPLED_DRAIN_ETA = (
    "CASE WHEN there > 0 AND there_change < 0 THEN "
    "CAST(there AS DOUBLE) * CAST(there_us AS DOUBLE) / (CAST(-there_change AS DOUBLE) * CAST(1000000 AS DOUBLE)) END"
)


#: The length of a row's window: a rolled-up bucket's own, else the window as far as there are seconds.
_WINDOW_SECONDS = (
    "CASE WHEN bucket_seconds > 1 THEN bucket_seconds ELSE GREATEST(1, LEAST($window, "
    "at_second - GREATEST(first_second - 1, level_starts_after))) END"
)

#: An opening balance is the one bucket that is longer than a day. It tells how things stood at its end, and of no
#: instant before: it begins there, and is no row of history.
_OPENING = "bucket_seconds > 86400"
_FIRST_SECOND = f"CASE WHEN {_OPENING} THEN at_second ELSE at_second - bucket_seconds + 1 END"

#: Seconds without arrivals after which a noisy tenant is quiet again.
QUIET_AFTER = 300

_THRESHOLD = (
    "GREATEST(CAST(0.1 AS DOUBLE), LEAST(CAST(0.6 AS DOUBLE), CAST(2 AS DOUBLE) / GREATEST(active_tenants, 1)))"
)
_ENTERS = (
    "(queue_ready - ready > 0 AND ((in_flight >= 30 AND in_flight > threshold * queue_in_flight) "
    "OR window_processing_sum > threshold * queue_processing_sum))"
)
_TURNS_QUIET = (
    f"backlog = 0 OR (ready = 0 AND NOT enters) OR at_second - COALESCE(last_arrival_second, 0) >= {QUIET_AFTER}"
)
_QUEUE_OLDEST_AGE = (
    f"CASE WHEN has_events THEN {_age_of('oldest_second')} WHEN there > 0 OR there IS NULL THEN told_age_seconds "
    "+ GREATEST(CAST(0 AS DOUBLE), CAST(as_of_us - sampled_us AS DOUBLE) / CAST(1000000 AS DOUBLE)) END"
)
# A dead-letter queue has none: nobody is meant to consume it.
_MODE = (
    "CASE WHEN dead_letters AND NOT has_events THEN NULL "
    "WHEN oldest_age_seconds IS NULL "
    "AND ((has_events AND backlog > 0) OR (NOT has_events AND (there > 0 OR there IS NULL))) THEN NULL "
    "WHEN oldest_age_seconds > $target THEN 'backlogged' ELSE 'fast' END"
)

FORMULAS = {
    "opening": _OPENING,
    "first_second": _FIRST_SECOND,
    "window_seconds": _WINDOW_SECONDS,
    "coverage": _COVERAGE,
    "drain_state": _DRAIN_STATE,
    "drain_eta": _DRAIN_ETA,
    "sampled_drain_state": _SAMPLED_DRAIN_STATE,
    "sampled_drain_eta": _SAMPLED_DRAIN_ETA,
    "backlog": "GREATEST(0, backlog_sum)",
    "in_flight": "GREATEST(0, in_flight_sum)",
    "ready": "GREATEST(0, GREATEST(0, backlog_sum) - GREATEST(0, in_flight_sum) - GREATEST(0, delayed_sum))",
    "finished": "(p.completed + p.dead_lettered + p.expired + p.sidelined)",
    "busy": "(p.started - p.completed - (p.dead_lettered + p.expired + p.sidelined - p.finished_unreceived))",
    "threshold": _THRESHOLD,
    "enters": _ENTERS,
    "turns_quiet": _TURNS_QUIET,
    "queue_oldest_age": _QUEUE_OLDEST_AGE,
    "quiet_oldest_age": _age_of("quiet_oldest_second"),
    "mode": _MODE,
    "processing_p99": bucket_value_sql("processing_bucket"),
}


def _read(file: str) -> str:
    return resources.files("lake.views").joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")


def complete(sql: str, **parts: str) -> str:
    """``sql`` with the formulas, and ``parts``, in their places."""
    return Template(sql).safe_substitute({**FORMULAS, **parts})


def _view(name: str, file: str, public: tuple[Column, ...] = (), **parts: str) -> View:
    return View(name, complete(_read(file), **parts), public)


def _stage(name: str) -> View:
    return _view(name, name)


def _newest_rows(table: str) -> View:
    newest = ", ".join(f"{column} DESC" for column in NEWEST_BY.get(table, NEWEST_BY_DEFAULT))
    return _view(f"{table}_now", "newest_rows", table=table, newest_first=newest)


_ALL = (
    _view("open_gaps", "open_gaps", columns.OPEN_GAPS),
    _stage("stage_history"),
    *(_newest_rows(name.removesuffix("_now")) for name in NEWEST),
    _stage("stage_epochs"),
    *(_view(f"{table}_past", "history_rows", table=table, names=names) for table, names in _NAMES.items()),
    _view("age_state_past", "buckets_of_ages"),
    _stage("stage_newest"),
    *(
        _view(f"attempt_age{twin}", "attempt_age", columns.ATTEMPT_AGE, tense=tense)
        for twin, tense in (("", "past"), ("_now", "now"))
    ),
    _stage("stage_tenants_now"),
    _stage("stage_totals"),
    *(
        _view(f"{name}{twin}", name, public, rows=rows)
        for name, public, past, now in (
            ("tenant_backlog", columns.TENANT_BACKLOG, "tenant_state_past", "stage_tenants_now"),
            ("concurrency", columns.CONCURRENCY, "tenant_state_past", "stage_tenants_now"),
            ("queue_health", columns.QUEUE_HEALTH, "queue_state_past", "queue_state_now"),
        )
        for twin, rows in (("", past), ("_now", now))
    ),
    _view("alert_states", "alert_states", columns.ALERT_STATES),
    _view("limits", "limits", columns.LIMITS),
)

VIEWS: dict[str, View] = {view.name: view for view in _ALL}


def render(view: View, definitions: Definitions) -> str:
    """The SQL of ``view``, in Spark's dialect, under a lake's ``definitions``."""
    return Template(view.sql).substitute(
        window=str(definitions.window_seconds),
        target=f"CAST({definitions.target_seconds!r} AS DOUBLE)",
    )
