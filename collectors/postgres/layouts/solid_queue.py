"""Solid Queue (Rails): small tables of what is ready, scheduled, claimed, blocked, failed beside one of all jobs."""

from __future__ import annotations

from fnmatch import fnmatchcase

from collectors.postgres.layouts.base import Found, Layout, Part

_JOBS = "solid_queue_jobs"


def _table(found: Found, kind: str) -> str:
    return found.name(f"solid_queue_{kind}_executions")


def _tenant(found: Found) -> str:
    return found.tenant("j", _JOBS, document="j.arguments::jsonb")


def _jobs(found: Found) -> list[Part]:
    utc, jobs = "AT TIME ZONE 'UTC'", found.name(_JOBS)
    # A retry of Active Job is a new row, which counts those before it. Rails writes JSON without spaces; a pattern is
    # ten times as fast as reading each document.
    retry = """(j.arguments LIKE '%"executions":%' AND j.arguments NOT LIKE '%"executions":0%')"""
    join = f"JOIN {jobs} AS j ON j.id = e.job_id"
    since = f"greatest(coalesce(j.scheduled_at, j.created_at), j.created_at) {utc}"
    begin = f"{_tenant(found)} AS tenant"
    return [
        Part(f"""
SELECT e.queue_name::text AS queue, {begin}, 'ready' AS state, {retry} AS retry, {since} AS since,
  NULL::timestamptz AS began, NULL::bigint AS id
FROM {_table(found, "ready")} AS e {join}
UNION ALL
SELECT e.queue_name::text, {begin}, CASE WHEN e.scheduled_at > now() {utc} THEN 'delayed' ELSE 'ready' END, {retry},
  {since}, NULL::timestamptz, NULL::bigint
FROM {_table(found, "scheduled")} AS e {join}
UNION ALL
SELECT e.queue_name::text, {begin}, 'delayed', {retry}, {since}, NULL::timestamptz, NULL::bigint
FROM {_table(found, "blocked")} AS e {join}
UNION ALL
SELECT j.queue_name::text, {begin}, 'running', {retry}, {since}, e.created_at {utc}, NULL::bigint
FROM {_table(found, "claimed")} AS e {join}""")
    ]


def _dead(found: Found) -> str:
    return f"""
SELECT j.queue_name::text AS queue, {_tenant(found)} AS tenant, e.created_at AT TIME ZONE 'UTC' AS since
FROM {_table(found, "failed")} AS e JOIN {found.name(_JOBS)} AS j ON j.id = e.job_id"""


def _queues(found: Found) -> str | None:
    if not found.has("solid_queue_pauses", "queue_name"):
        return None
    return f"SELECT queue_name::text, true, NULL::text FROM {found.name('solid_queue_pauses')}"


def _workers(found: Found) -> str | None:
    if not found.has("solid_queue_processes", "kind", "last_heartbeat_at", "metadata"):
        return None
    # Heartbeats come each minute; after five a process counts as dead there, too.
    return f"""
SELECT metadata::jsonb ->> 'queues', count(*) FROM {found.name("solid_queue_processes")}
WHERE kind = 'Worker' AND last_heartbeat_at > (now() AT TIME ZONE 'UTC') - interval '5 minutes' GROUP BY 1"""


def takes(pattern: str, queue: str) -> bool:
    """Whether a worker of ``queues: pattern`` takes ``queue``: names with commas between, ``*`` at the end of one."""
    return any(fnmatchcase(queue, part.strip()) for part in pattern.split(","))


SOLID_QUEUE = Layout(
    name="solid_queue",
    schema="public",
    tables={
        _JOBS: ("id", "queue_name", "arguments", "scheduled_at", "created_at"),
        "solid_queue_ready_executions": ("job_id", "queue_name"),
        "solid_queue_scheduled_executions": ("job_id", "queue_name", "scheduled_at"),
        "solid_queue_claimed_executions": ("job_id", "created_at"),
        "solid_queue_blocked_executions": ("job_id", "queue_name"),
        "solid_queue_failed_executions": ("job_id", "created_at"),
    },
    more=("solid_queue_pauses", "solid_queue_processes"),
    jobs=_jobs,
    word="failed",
    dead=_dead,
    queues=_queues,
    consumers=_workers,
    takes=takes,
    untold={"consumers": "Solid Queue's processes cannot be read"},
)
