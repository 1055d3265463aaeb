"""graphile-worker (Node.js): jobs are deleted when they succeed, and kept when their attempts are used up.

A queue here is a *task* (``task_identifier``): what graphile-worker calls a queue is a lock that jobs share. The view
``jobs`` is read, which row security does not narrow; a tenant within the payload needs the private tables behind it.
"""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Lacking, Layout, Part

_PRIVATE, _TASKS = "_private_jobs", "_private_tasks"


def _source(found: Found) -> tuple[str, str]:
    """FROM, and the tenant's expression. Lacking."""
    if "payload" in found.tables["jobs"].columns:  # before 0.16 it was a table
        return f"{found.name('jobs')} AS j", found.tenant("j", "jobs", document="j.payload", headers="j.flags")
    asks = any(rule.source == "json" or (rule.source == "column" and rule.text == "payload") for rule in found.rules)
    if not asks:
        return f"{found.name('jobs')} AS j", found.tenant("j", "jobs", headers="j.flags")
    for table in (_PRIVATE, _TASKS):
        if not found.has(table, "id"):
            why = f"a tenant in the payload needs to read {found.schema}.{table}: see docs/brokers/postgres.md"
            raise Lacking(why)
    private, tasks = found.name(_PRIVATE), found.name(_TASKS)
    # The view's own join: what it joins a second time, for each job, costs as much again.
    jobs = f"SELECT p.*, t.identifier AS task_identifier FROM {private} AS p JOIN {tasks} AS t ON t.id = p.task_id"
    return f"({jobs}) AS j", found.tenant("j", _PRIVATE, document="j.payload", headers="j.flags")


def _jobs(found: Found) -> list[Part]:
    source, tenant = _source(found)
    return [
        Part(f"""
SELECT j.task_identifier AS queue, {tenant} AS tenant,
  CASE WHEN j.locked_at IS NOT NULL THEN 'running' WHEN j.run_at > now() THEN 'delayed' ELSE 'ready' END AS state,
  j.attempts > 0 AS retry, greatest(j.run_at, j.created_at) AS since, j.locked_at AS began, NULL::bigint AS id
FROM {source} WHERE j.locked_at IS NOT NULL OR j.attempts < j.max_attempts""")
    ]


def _dead(found: Found) -> str:
    source, tenant = _source(found)
    return f"""
SELECT j.task_identifier AS queue, {tenant} AS tenant, j.updated_at AS since
FROM {source} WHERE j.locked_at IS NULL AND j.attempts >= j.max_attempts"""


_COLUMNS = ("task_identifier", "run_at", "attempts", "max_attempts", "created_at", "updated_at", "locked_at", "flags")
GRAPHILE = Layout(
    name="graphile",
    schema="graphile_worker",
    tables={"jobs": _COLUMNS},
    more=(_PRIVATE, _TASKS),
    jobs=_jobs,
    word="failed",
    dead=_dead,
    untold={"consumers": "graphile-worker does not list its workers"},
)
