"""River (Go): one table of all jobs, whose index leads with the state."""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Layout, Part


def _tenant(found: Found) -> str:
    return found.tenant("j", "river_job", document="j.args", headers="j.metadata")


def _jobs(found: Found) -> list[Part]:
    # attempt counts attempts that began; a snooze gives its own back.
    return [
        Part(f"""
SELECT j.queue, {_tenant(found)} AS tenant,
  CASE WHEN j.state = 'running' THEN 'running' WHEN j.state = 'pending' THEN 'delayed'
    WHEN j.state = 'available' OR j.scheduled_at <= now() THEN 'ready' ELSE 'delayed' END AS state,
  j.attempt > 0 AS retry, greatest(j.scheduled_at, j.created_at) AS since, j.attempted_at AS began, NULL::bigint AS id
FROM {found.name("river_job")} AS j
WHERE j.state IN ('available', 'pending', 'retryable', 'running', 'scheduled')""")
    ]


def _dead(found: Found) -> str:
    return f"""
SELECT j.queue, {_tenant(found)} AS tenant, j.finalized_at AS since
FROM {found.name("river_job")} AS j WHERE j.state = 'discarded' AND j.finalized_at IS NOT NULL"""


def _queues(found: Found) -> str | None:
    if not found.has("river_queue", "name", "paused_at"):
        return None
    return f"SELECT name, paused_at IS NOT NULL, NULL::text FROM {found.name('river_queue')}"


_COLUMNS = (
    "queue",
    "state",
    "attempt",
    "scheduled_at",
    "created_at",
    "attempted_at",
    "finalized_at",
    "args",
    "metadata",
)
RIVER = Layout(
    name="river",
    schema="public",
    tables={"river_job": _COLUMNS},
    more=("river_queue",),
    jobs=_jobs,
    word="discarded",
    dead=_dead,
    queues=_queues,
    untold={"consumers": "River's clients are not listed in its tables"},
)
