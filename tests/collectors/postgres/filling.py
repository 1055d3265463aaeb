"""Databases in which a library has worked, and any number of jobs that have ended there."""

from __future__ import annotations

import psycopg

from tests.collectors.postgres.reading import Database, application, pgboss_tables, wait_for
from tests.collectors.postgres.test_libraries import APPLICATIONS
from tests.collectors.postgres.test_schemas import JOBS
from tests.support.postgresql import PostgresServer

_PGBOSS = """
INSERT INTO pgboss.job (name, state, data, started_on, completed_on)
SELECT 'orders', 'completed', '{{"tenant": "a"}}', now(), now() FROM generate_series(1, {number})"""
#: Layout (or version of one) → what has ended, {number} of it, as the library leaves it.
FINISHED = {
    "river": """
INSERT INTO river_job (
  kind, args, max_attempts, state, queue, attempt, created_at, scheduled_at, attempted_at, finalized_at
)
SELECT 'order', '{{"tenant": "a"}}', 25, 'completed', 'orders', 1, t, t, t, t
FROM generate_series(1, {number}) AS n, LATERAL (SELECT now() - n * interval '1 ms' AS t) AS clock""",
    "oban": """
INSERT INTO oban_jobs (queue, worker, state, attempt, completed_at)
SELECT 'orders', 'W', 'completed', 1, now() FROM generate_series(1, {number})""",
    "pgboss": _PGBOSS,
    "pgboss 9": """
INSERT INTO pgboss.job (name, state, data, startedon, completedon)
SELECT 'orders', 'completed', '{{"tenant": "a"}}', now(), now() FROM generate_series(1, {number})""",
    "pgboss 11": _PGBOSS,
    "pgboss 12": _PGBOSS,
    "graphile": "",
    "procrastinate": """
INSERT INTO procrastinate_jobs (queue_name, task_name, status, attempts)
SELECT 'orders', 'order', 'succeeded', 1 FROM generate_series(1, {number})""",
    "pgqueuer": """
INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint)
SELECT n, 'successful', 0, 'orders' FROM generate_series(1, {number}) AS n""",
    "pgmq": """
INSERT INTO pgmq.a_orders (msg_id, read_ct, enqueued_at, vt)
SELECT 1000 + n, 1, now(), now() FROM generate_series(1, {number}) AS n""",
    "solid_queue": """
INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at, scheduled_at, finished_at)
SELECT 'orders', 'J', '{{"tenant":"a","executions":0}}', t, t, t, t
FROM generate_series(1, {number}) AS n, LATERAL (SELECT now() - n * interval '1 ms' AS t) AS clock""",
    "good_job": """
INSERT INTO good_jobs (queue_name, serialized_params, executions_count, scheduled_at, performed_at, finished_at)
SELECT 'orders', '{{"tenant": "a"}}', 1, t, t, t
FROM generate_series(1, {number}) AS n, LATERAL (SELECT now() - n * interval '1 ms' AS t) AS clock""",
}
#: Of job n.
_QUEUE, _TENANT, _RETRY = "'q' || n % 20", "jsonb_build_object('tenant', 't' || n % 50)", "(n % 25 = 4)::int"
_DUE = "now() + CASE WHEN n % 5 = 4 THEN interval '1 hour' ELSE n * interval '-1 ms' END"
_JOBS = "FROM generate_series(1, {number}) AS n"
#: Layout → what adds {number} jobs that have not ended: of 25 one is to be retried and four are delayed.
WAITING = {
    "river": f"""
INSERT INTO river_job (kind, args, max_attempts, state, queue, attempt, scheduled_at)
SELECT 'order', {_TENANT}, 25, (CASE WHEN n % 25 = 4 THEN 'retryable' WHEN n % 5 = 4 THEN 'scheduled'
  ELSE 'available' END)::river_job_state, {_QUEUE}, {_RETRY}, {_DUE} {_JOBS}""",
    "oban": f"""
INSERT INTO oban_jobs (queue, worker, args, state, attempt, scheduled_at)
SELECT {_QUEUE}, 'W', {_TENANT}, (CASE WHEN n % 25 = 4 THEN 'retryable' WHEN n % 5 = 4 THEN 'scheduled'
  ELSE 'available' END)::oban_job_state, {_RETRY}, ({_DUE}) AT TIME ZONE 'UTC' {_JOBS}""",
    "pgboss": f"""
SELECT pgboss.create_queue('q' || n, '{{{{"policy": "standard"}}}}') FROM generate_series(0, 19) AS n;
INSERT INTO pgboss.job (name, data, state, retry_count, start_after)
SELECT {_QUEUE}, {_TENANT}, (CASE WHEN n % 25 = 4 THEN 'retry' ELSE 'created' END)::pgboss.job_state, {_RETRY}, {_DUE}
{_JOBS}""",
    "graphile": f"""
SELECT graphile_worker.add_job({_QUEUE}, ({_TENANT})::json, run_at => {_DUE}) {_JOBS}""",
    "procrastinate": f"""
INSERT INTO procrastinate_jobs (queue_name, task_name, args, attempts, scheduled_at)
SELECT {_QUEUE}, 'order', {_TENANT}, {_RETRY}, CASE WHEN n % 5 = 4 THEN {_DUE} END {_JOBS}""",
    "pgqueuer": f"""
INSERT INTO pgqueuer (priority, status, entrypoint, payload, attempts, execute_after)
SELECT 0, 'queued', {_QUEUE}, convert_to(({_TENANT})::text, 'UTF8'), {_RETRY}, {_DUE} {_JOBS}""",
    "pgmq": f"""
INSERT INTO pgmq.q_orders (message, read_ct, enqueued_at, vt)
SELECT {_TENANT}, {_RETRY}, now() - n * interval '1 ms', {_DUE} {_JOBS}""",
    "solid_queue": f"""
INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at, scheduled_at)
SELECT {_QUEUE}, 'waiting', format('{{{{"tenant":"t%s","executions":%s}}}}', n % 50, {_RETRY}), t, t, t
{_JOBS}, LATERAL (SELECT ({_DUE}) AT TIME ZONE 'UTC' AS t) AS clock;
INSERT INTO solid_queue_ready_executions (job_id, queue_name, created_at)
  SELECT id, queue_name, created_at FROM solid_queue_jobs WHERE class_name = 'waiting' AND scheduled_at <= now();
INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, scheduled_at, created_at)
  SELECT id, queue_name, scheduled_at, created_at FROM solid_queue_jobs
  WHERE class_name = 'waiting' AND scheduled_at > now()""",
    "good_job": f"""
INSERT INTO good_jobs (queue_name, serialized_params, executions_count, scheduled_at)
SELECT {_QUEUE}, {_TENANT}, {_RETRY}, ({_DUE}) AT TIME ZONE 'UTC' {_JOBS}""",
}
#: What makes the jobs that no index of the library's own finds be found.
INDEXES = {
    "procrastinate": "CREATE INDEX ON procrastinate_jobs (queue_name) WHERE status = 'failed'",
    "pgboss": "CREATE INDEX ON pgboss.job (name) WHERE state = 'active';"
    "CREATE INDEX ON pgboss.job (name) WHERE state = 'failed'",
}
#: Of :data:`INDEXES`, what is not told without.
UNSERVED = {
    "procrastinate": {"orders.failed"},
    **{name: {"orders", "orders.failed"} for name in ("pgboss", "pgboss 9", "pgboss 11")},
}
#: Of pg-boss 11 and 12, which are there as tables alone: what the applications leave.
_PGBOSS_JOBS = """
SELECT pgboss.create_queue('orders', '{"policy": "standard"}');
INSERT INTO pgboss.job (name, state, data, retry_count, start_after, started_on, completed_on)
SELECT 'orders', state::pgboss.job_state, jsonb_build_object('tenant', tenant), (state = 'retry')::int,
  now() + CASE WHEN later THEN interval '1 hour' ELSE interval '0' END, now(), CASE WHEN state = 'failed' THEN now() END
FROM (VALUES ('active', 'a', false), ('created', 'a', false), ('created', 'a', false), ('created', 'b', false),
  ('created', 'a', true), ('created', 'a', true), ('retry', 'b', true), ('failed', 'b', false)
) AS jobs (state, tenant, later)"""

_made: dict[tuple[int, str], Database] = {}


def worked(server: PostgresServer, name: str) -> Database:
    """A database of its own in which the library ``name`` has worked: three jobs wait, one runs, three are delayed."""
    template = _made.get((server.port, name))
    if template is None:
        template = _made[(server.port, name)] = Database.make(server)
        if name in JOBS:
            template.schema(name)
            template.run(JOBS[name])
        elif name in ("pgboss 11", "pgboss 12"):
            template.run(pgboss_tables(int(name.split()[1])))
            template.run(_PGBOSS_JOBS)
        else:
            application_name = {"pgboss": "pgboss 10"}.get(name, name)
            with application(application_name, template):
                wait_for(template, APPLICATIONS[application_name][2])
        template.alone()
    return Database.make(server, template)


def fill(database: Database, name: str, number: int) -> None:
    """Add ``number`` jobs that have ended, and let PostgreSQL know."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        if FINISHED[name]:
            connection.execute(FINISHED[name].format(number=number).encode())
        connection.execute("VACUUM ANALYZE")


def wait_in(database: Database, layout: str, number: int) -> None:
    """Add ``number`` jobs that have not ended, newer than all that have."""
    database.run(WAITING[layout].format(number=number))
    database.run("ANALYZE")


def index(database: Database, layout: str) -> None:
    """Make :data:`INDEXES`, where the layout needs some."""
    if layout in INDEXES:
        database.run(INDEXES[layout])
