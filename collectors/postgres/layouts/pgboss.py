"""pg-boss (Node.js): one table of jobs, since version 10 with a partition for each queue; an index of what waits alone.

Before version 12 no index of pg-boss tells what is active, and what has failed (docs/brokers/postgres.md has one).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from collectors.postgres.layouts.base import Found, Layout, Part, required


class _Names(NamedTuple):
    """Columns as they are written in a version."""

    start: str
    created: str
    started: str
    completed: str
    retries: str


_NEW = _Names("start_after", "created_on", "started_on", "completed_on", "retry_count")
_OLD = _Names("startafter", "createdon", "startedon", "completedon", "retrycount")


#: pg-boss' queues for its own maintenance are left out.
_NOT_OURS = "NOT starts_with(j.name, '__pgboss__')"


def _names(found: Found) -> _Names:
    return _NEW if "start_after" in found.tables["job"].columns else _OLD


def _serves(found: Found, state: str) -> str | None:
    """As :meth:`Found.serves`, where the jobs are in partitions: each one for itself."""
    partitions = [name for name, table in found.tables.items() if table.partition and name != "job"]
    return next((why for name in partitions or ["job"] if (why := _served(found, name, state))), None)


def _served(found: Found, table: str, state: str) -> str | None:
    # Version 12 has an index of all states that are live, in one condition.
    if any(re.fullmatch(rf"state = ANY ARRAY\[.*'{state}'::[^]]*\]", index) for index in found.tables[table].indexes):
        return None
    return found.serves(table, rf"state = '{state}'::\S+")


def _waiting(found: Found) -> str:
    names = _names(found)
    tenant = found.tenant("j", "job", document="j.data")
    # In version 12 a job may wait for others; its index is of states by name.
    blocked, states = "", "j.state < 'active'"
    if "blocked" in found.tables["job"].columns:
        blocked, states = "j.blocked OR ", "j.state IN ('created', 'retry')"
    return f"""
SELECT j.name AS queue, {tenant} AS tenant,
  CASE WHEN {blocked}j.{names.start} > now() THEN 'delayed' ELSE 'ready' END AS state,
  j.state = 'retry' OR j.{names.retries} > 0 AS retry, greatest(j.{names.start}, j.{names.created}) AS since,
  NULL::timestamptz AS began, NULL::bigint AS id
FROM {found.name("job")} AS j WHERE {states} AND {_NOT_OURS}"""


def _jobs(found: Found) -> list[Part]:
    if _serves(found, "active") is not None:
        return [Part(_waiting(found))]
    names = _names(found)
    return [
        Part(f"""{_waiting(found)}
UNION ALL
SELECT j.name, {found.tenant("j", "job", document="j.data")}, 'running', j.{names.retries} > 0,
  greatest(j.{names.start}, j.{names.created}), j.{names.started}, NULL::bigint
FROM {found.name("job")} AS j WHERE j.state = 'active' AND {_NOT_OURS}""")
    ]


def _untold_running(found: Found) -> str | None:
    return _serves(found, "active")


def _dead(found: Found) -> str:
    required(_serves(found, "failed"))
    return f"""
SELECT j.name AS queue, {found.tenant("j", "job", document="j.data")} AS tenant, j.{_names(found).completed} AS since
FROM {found.name("job")} AS j WHERE j.state = 'failed' AND {_NOT_OURS}"""


def _queues(found: Found) -> str | None:
    if not found.has("queue", "name", "dead_letter"):
        return None
    table = found.name("queue")
    return f"""
SELECT q.name, false, (SELECT string_agg(s.name, ',' ORDER BY s.name) FROM {table} AS s WHERE s.dead_letter = q.name)
FROM {table} AS q WHERE NOT starts_with(q.name, '__pgboss__')"""


PGBOSS = Layout(
    name="pgboss",
    schema="pgboss",
    tables={"job": ("name", "state", "data")},
    more=("queue", "version"),
    jobs=_jobs,
    untold_running=_untold_running,
    word="failed",
    dead=_dead,
    queues=_queues,
    prefix="j",
    untold={"consumers": "pg-boss does not list its workers"},
)
