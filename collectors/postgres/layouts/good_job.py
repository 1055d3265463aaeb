"""GoodJob (Rails): one table of all jobs, with indexes of those that have not finished; version 3 and 4."""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Layout, Part, required

_TABLE = "good_jobs"


def _tenant(found: Found) -> str:
    return found.tenant("j", _TABLE, document="j.serialized_params")


def _jobs(found: Found) -> list[Part]:
    utc = "AT TIME ZONE 'UTC'"
    attempts = "executions_count" if "executions_count" in found.tables[_TABLE].columns else None
    retry = f"coalesce(j.{attempts}, 0) > 0" if attempts else "j.serialized_params ->> 'executions' <> '0'"
    return [
        Part(f"""
SELECT coalesce(j.queue_name, 'default') AS queue, {_tenant(found)} AS tenant,
  CASE WHEN j.performed_at IS NOT NULL THEN 'running' WHEN j.scheduled_at > now() {utc} THEN 'delayed'
    ELSE 'ready' END AS state,
  {retry} AS retry, greatest(coalesce(j.scheduled_at, j.created_at), j.created_at) {utc} AS since,
  j.performed_at {utc} AS began, NULL::bigint AS id
FROM {found.name(_TABLE)} AS j WHERE j.finished_at IS NULL""")
    ]


def _dead(found: Found) -> str:
    required(found.serves(_TABLE, "finished_at IS NOT NULL AND error IS NOT NULL"))
    retried = " AND j.retried_good_job_id IS NULL" if "retried_good_job_id" in found.tables[_TABLE].columns else ""
    return f"""
SELECT coalesce(j.queue_name, 'default') AS queue, {_tenant(found)} AS tenant, j.finished_at AT TIME ZONE 'UTC' AS since
FROM {found.name(_TABLE)} AS j WHERE j.finished_at IS NOT NULL AND j.error IS NOT NULL{retried}"""


def _schedulers(found: Found) -> str | None:
    if not found.has("good_job_processes", "state", "updated_at"):
        return None
    return f"""
SELECT s ->> 'queues', count(*) FROM {found.name("good_job_processes")} AS p,
  jsonb_array_elements(CASE WHEN jsonb_typeof(p.state -> 'schedulers') = 'array' THEN p.state -> 'schedulers' END) AS s
WHERE p.updated_at > (now() AT TIME ZONE 'UTC') - interval '5 minutes' AND s ->> 'queues' IS NOT NULL GROUP BY 1"""


def takes(pattern: str, queue: str) -> bool:
    """Whether a scheduler of ``queues: pattern`` takes ``queue``: ``*``, ``a,b``, ``+a,b`` in order, ``-a`` all but."""
    names = [name.strip() for name in pattern.lstrip("+-").split(",")]
    return queue not in names if pattern.startswith("-") else "*" in names or queue in names


GOOD_JOB = Layout(
    name="good_job",
    schema="public",
    tables={
        _TABLE: (
            "queue_name",
            "serialized_params",
            "scheduled_at",
            "performed_at",
            "finished_at",
            "created_at",
            "error",
        )
    },
    more=("good_job_processes",),
    jobs=_jobs,
    word="discarded",
    dead=_dead,
    consumers=_schedulers,
    takes=takes,
    untold={"consumers": "GoodJob's processes cannot be read"},
)
