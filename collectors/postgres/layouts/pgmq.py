"""PGMQ (extension, and Supabase Queues): a table for each queue, leased by its visibility time ``vt`` as SQS does."""

from __future__ import annotations

from collectors.postgres.layouts.base import Found, Layout, Part

#: Queues that one statement reads.
_AT_ONCE = 100
_COLUMNS = {"msg_id", "read_ct", "enqueued_at", "vt", "message"}


def _jobs(found: Found) -> list[Part]:
    tables = sorted(
        name
        for name, table in found.tables.items()
        if name.startswith("q_") and not table.partition and table.columns >= _COLUMNS
    )
    readable = [name for name in tables if found.has(name)]
    parts = []
    for at in range(0, len(readable), _AT_ONCE):
        some = readable[at : at + _AT_ONCE]
        queues = tuple(name.removeprefix("q_") for name in some)
        parts.append(Part("\nUNION ALL".join(_queue(found, name) for name in some), queues))
    return parts


def _queue(found: Found, table: str) -> str:
    columns = found.tables[table].columns
    tenant = found.tenant("j", table, document="j.message", headers="j.headers" if "headers" in columns else None)
    # A read sets vt anew: the delay that a message was sent with is forgotten then.
    return f"""
SELECT '{table.removeprefix("q_").replace("'", "''")}' AS queue, {tenant} AS tenant,
  CASE WHEN j.vt <= now() THEN 'ready' WHEN j.read_ct > 0 THEN 'running' ELSE 'delayed' END AS state,
  j.read_ct > 0 AS retry, CASE WHEN j.read_ct = 0 THEN greatest(j.vt, j.enqueued_at) ELSE j.enqueued_at END AS since,
  {"j.last_read_at" if "last_read_at" in columns else "NULL::timestamptz"} AS began, NULL::bigint AS id
FROM {found.name(table)} AS j"""


def _queues(found: Found) -> str:
    return f"SELECT lower(queue_name::text), false, NULL::text FROM {found.name('meta')}"


PGMQ = Layout(
    name="pgmq",
    schema="pgmq",
    tables={"meta": ("queue_name",)},
    jobs=_jobs,
    queues=_queues,
    prefix="q_",
    untold={
        "consumers": "PGMQ's consumers poll, and are not listed",
        "oldest_in_flight_age_seconds": "this PGMQ does not keep when a message was read",
    },
)
