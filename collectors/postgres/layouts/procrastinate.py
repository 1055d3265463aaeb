"""Procrastinate (Python): one table of all jobs with an index of those to do; when a job came stands in its events."""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Layout, Part, required


def _tenant(found: Found) -> str:
    return found.tenant("j", "procrastinate_jobs", document="j.args")


def _jobs(found: Found) -> list[Part]:
    jobs, events = found.name("procrastinate_jobs"), found.name("procrastinate_events")
    # Two SELECTs, each of which is one partial index: their union as one condition would be none.
    return [
        Part(f"""
SELECT j.queue_name::text AS queue, {_tenant(found)} AS tenant,
  CASE WHEN j.scheduled_at > now() THEN 'delayed' ELSE 'ready' END AS state,
  j.attempts > 0 AS retry, j.scheduled_at AS since, NULL::timestamptz AS began, j.id
FROM {jobs} AS j WHERE j.status = 'todo'
UNION ALL
SELECT j.queue_name::text, {_tenant(found)}, 'running', j.attempts > 0, j.scheduled_at,
  (SELECT max(e.at) FROM {events} AS e WHERE e.job_id = j.id AND e.type = 'started'), j.id
FROM {jobs} AS j WHERE j.status = 'doing'""")
    ]


def _resolve(found: Found) -> str:
    events = found.name("procrastinate_events")
    return f"(SELECT min(e.at) FROM {events} AS e WHERE e.job_id = {{id}} AND e.type = 'deferred')"


def _dead(found: Found) -> str:
    required(found.serves("procrastinate_jobs", r"status = 'failed'::\S+"))
    jobs, events = found.name("procrastinate_jobs"), found.name("procrastinate_events")
    return f"""
SELECT j.queue_name::text AS queue, {_tenant(found)} AS tenant,
  (SELECT max(e.at) FROM {events} AS e WHERE e.job_id = j.id AND e.type = 'failed') AS since
FROM {jobs} AS j WHERE j.status = 'failed'"""


PROCRASTINATE = Layout(
    name="procrastinate",
    schema="public",
    tables={
        "procrastinate_jobs": ("id", "queue_name", "status", "scheduled_at", "attempts", "args"),
        "procrastinate_events": ("job_id", "type", "at"),
    },
    jobs=_jobs,
    resolve=_resolve,
    word="failed",
    dead=_dead,
    untold={"consumers": "Procrastinate lists its workers without their queues"},
)
