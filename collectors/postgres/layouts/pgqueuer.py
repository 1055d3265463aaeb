"""PgQueuer (Python): a table of jobs that have not ended, a log of those that have. A queue is an *entrypoint*."""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Layout, Part

_TABLE = "pgqueuer"


def _tenant(found: Found) -> str:
    headers = "j.headers" if "headers" in found.tables[_TABLE].columns else None
    return found.tenant("j", _TABLE, document="convert_from(j.payload, 'UTF8')::jsonb", headers=headers)


def _jobs(found: Found) -> list[Part]:
    attempts = "j.attempts > 0" if "attempts" in found.tables[_TABLE].columns else "NULL::boolean"
    begin = f"SELECT j.entrypoint AS queue, {_tenant(found)} AS tenant"
    since = "greatest(j.created, j.execute_after) AS since"
    return [
        Part(f"""
{begin}, CASE WHEN j.execute_after > now() THEN 'delayed' ELSE 'ready' END AS state, {attempts} AS retry, {since},
  NULL::timestamptz AS began, NULL::bigint AS id
FROM {found.name(_TABLE)} AS j WHERE j.status = 'queued'
UNION ALL
{begin}, 'running', {attempts}, {since}, j.updated, NULL::bigint
FROM {found.name(_TABLE)} AS j WHERE j.status = 'picked'""")
    ]


def _dead(found: Found) -> str | None:
    if "failed" not in found.labels:
        return None
    return f"""
SELECT j.entrypoint AS queue, {_tenant(found)} AS tenant, j.updated AS since
FROM {found.name(_TABLE)} AS j WHERE j.status = 'failed'"""


PGQUEUER = Layout(
    name="pgqueuer",
    schema="public",
    tables={_TABLE: ("id", "entrypoint", "status", "created", "updated", "execute_after", "payload")},
    jobs=_jobs,
    word="failed",
    dead=_dead,
    enum="pgqueuer_status",
    untold={"consumers": "PgQueuer's managers are not listed in its tables"},
)
