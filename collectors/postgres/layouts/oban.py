"""Oban (Elixir, and for Python): one table of all jobs, whose index leads with the state; its times are UTC."""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Layout, Part

#: Producers report each quarter of a minute; one that died is deleted by the others a minute later.
_ALIVE = "updated_at > (now() AT TIME ZONE 'UTC') - interval '1 minute'"


def _tenant(found: Found) -> str:
    return found.tenant("j", "oban_jobs", document="j.args", headers="j.meta")


def _jobs(found: Found) -> list[Part]:
    states = [
        state for state in ("available", "scheduled", "suspended", "retryable", "executing") if state in found.labels
    ]
    listed = ", ".join(f"'{state}'" for state in states)
    held = "j.state = 'suspended' OR " if "suspended" in states else ""
    return [
        Part(f"""
SELECT j.queue, {_tenant(found)} AS tenant,
  CASE WHEN j.state = 'executing' THEN 'running'
    WHEN {held}(j.state <> 'available' AND j.scheduled_at > now() AT TIME ZONE 'UTC') THEN 'delayed'
    ELSE 'ready' END AS state,
  j.attempt > 0 AS retry, greatest(j.scheduled_at, j.inserted_at) AT TIME ZONE 'UTC' AS since,
  j.attempted_at AT TIME ZONE 'UTC' AS began, NULL::bigint AS id
FROM {found.name("oban_jobs")} AS j WHERE j.state IN ({listed})""")
    ]


def _dead(found: Found) -> str:
    return f"""
SELECT j.queue, {_tenant(found)} AS tenant, j.discarded_at AT TIME ZONE 'UTC' AS since
FROM {found.name("oban_jobs")} AS j WHERE j.state = 'discarded'"""


def _queues(found: Found) -> str | None:
    if not found.has("oban_producers", "queue", "meta", "updated_at"):
        return None
    return f"""
SELECT queue, bool_and(coalesce(meta ->> 'paused' = 'true', false)), NULL::text
FROM {found.name("oban_producers")} WHERE {_ALIVE} GROUP BY queue"""


def _producers(found: Found) -> str | None:
    if not found.has("oban_producers", "queue", "updated_at"):
        return None
    return f"""
SELECT queue, count(*) FROM {found.name("oban_producers")}
WHERE {_ALIVE} GROUP BY queue"""


_COLUMNS = ("queue", "state", "attempt", "scheduled_at", "inserted_at", "attempted_at", "discarded_at", "args", "meta")
OBAN = Layout(
    name="oban",
    schema="public",
    tables={"oban_jobs": _COLUMNS},
    more=("oban_producers",),
    jobs=_jobs,
    word="discarded",
    dead=_dead,
    queues=_queues,
    consumers=_producers,
    enum="oban_job_state",
    untold={"consumers": "this Oban lists no producers in its tables (Pro and Oban for Python do)"},
)
