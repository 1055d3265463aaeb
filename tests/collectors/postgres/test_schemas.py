"""Libraries without a runtime here: their tables by DDL, jobs in them as the libraries leave them."""

from __future__ import annotations

import pytest

from collectors.postgres.layouts import LAYOUTS
from collectors.postgres.settings import PostgresBroker
from tests.collectors.postgres.reading import Database
from tests.collectors.postgres.test_libraries import BY_PATH, NEAR, counted
from tests.support.facts import Note, measured

#: The same jobs in each: of "orders" one has run for 30 s that was due 40 s ago; three wait, the first of which was due
#: 20 s ago; two are scheduled, one waits for another attempt; one died 50 s ago; one is done.
OBAN = """
INSERT INTO oban_jobs (queue, worker, state, args, attempt, inserted_at, scheduled_at, attempted_at, discarded_at)
SELECT 'orders', 'W', state::oban_job_state, jsonb_build_object('tenant', tenant), attempt, t - inserted * s,
  t - due * s, CASE WHEN attempt > 0 THEN t - began * s END, CASE WHEN state = 'discarded' THEN t - 50 * s END
FROM (SELECT now() AT TIME ZONE 'UTC' AS t, interval '1 second' AS s) AS clock, (VALUES
  ('executing', 'a', 1, 60, 40, 30), ('available', 'a', 0, 20, 20, 0), ('available', 'a', 0, 90, 10, 0),
  ('available', 'b', 0, 5, 5, 0), ('scheduled', 'a', 0, 99, -3600, 0), ('scheduled', 'a', 0, 99, -3600, 0),
  ('retryable', 'b', 3, 99, -60, 70), ('discarded', 'b', 20, 99, 60, 55), ('completed', 'a', 1, 99, 99, 99)
) AS jobs (state, tenant, attempt, inserted, due, began);
INSERT INTO oban_producers (node, queue) VALUES ('one', 'orders'), ('two', 'orders'), ('two', 'idle');
INSERT INTO oban_producers (node, queue, updated_at) VALUES
  ('gone', 'orders', now() AT TIME ZONE 'UTC' - interval '1 hour')"""
SOLID_QUEUE = """
INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at, scheduled_at, finished_at)
SELECT 'orders', state,
  replace(json_build_object('tenant', tenant, 'executions', runs)::text, ' ', ''), t - created * s, t, t - due * s,
  CASE WHEN state = 'done' THEN t END
FROM (SELECT now() AT TIME ZONE 'UTC' AS t, interval '1 second' AS s) AS clock, (VALUES
  ('claimed', 'a', 0, 60, 40), ('ready', 'a', 0, 20, 20), ('ready', 'a', 0, 90, 10), ('scheduled', 'b', 0, 5, 5),
  ('scheduled', 'a', 0, 99, -3600), ('blocked', 'a', 0, 99, 99), ('scheduled', 'b', 1, 99, -60),
  ('failed', 'b', 0, 99, 60), ('done', 'a', 0, 99, 99)
) AS jobs (state, tenant, runs, created, due);
INSERT INTO solid_queue_ready_executions (job_id, queue_name, created_at)
  SELECT id, queue_name, scheduled_at FROM solid_queue_jobs WHERE class_name = 'ready';
INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, scheduled_at, created_at)
  SELECT id, queue_name, scheduled_at, created_at FROM solid_queue_jobs WHERE class_name = 'scheduled';
INSERT INTO solid_queue_claimed_executions (job_id, created_at)
  SELECT id, now() AT TIME ZONE 'UTC' - interval '30 seconds' FROM solid_queue_jobs WHERE class_name = 'claimed';
INSERT INTO solid_queue_blocked_executions (job_id, queue_name, concurrency_key, expires_at, created_at)
  SELECT id, queue_name, 'k', now(), created_at FROM solid_queue_jobs WHERE class_name = 'blocked';
INSERT INTO solid_queue_failed_executions (job_id, created_at)
  SELECT id, now() AT TIME ZONE 'UTC' - interval '50 seconds' FROM solid_queue_jobs WHERE class_name = 'failed';
INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('orders', now());
INSERT INTO solid_queue_processes (kind, last_heartbeat_at, pid, metadata, created_at, name) VALUES
  ('Worker', now() AT TIME ZONE 'UTC', 1, '{"queues":"*"}', now(), 'w1'),
  ('Worker', now() AT TIME ZONE 'UTC', 2, '{"queues":"mail,ord*"}', now(), 'w2'),
  ('Worker', now() AT TIME ZONE 'UTC', 3, '{"queues":"mail"}', now(), 'w3'),
  ('Dispatcher', now() AT TIME ZONE 'UTC', 4, '{}', now(), 'd1'),
  ('Worker', now() - interval '1 hour', 5, '{"queues":"*"}', now(), 'w5')"""
GOOD_JOB = """
INSERT INTO good_jobs (
  queue_name, job_class, serialized_params, executions_count, created_at, scheduled_at, performed_at, finished_at, error
)
SELECT 'orders', state, jsonb_build_object('tenant', tenant), runs, t - created * s, t - due * s,
  CASE WHEN state = 'runs' THEN t - 30 * s END, CASE WHEN state IN ('dead', 'done') THEN t - 50 * s END,
  CASE WHEN state = 'dead' OR runs > 1 THEN 'Boom' END
FROM (SELECT now() AT TIME ZONE 'UTC' AS t, interval '1 second' AS s) AS clock, (VALUES
  ('runs', 'a', 1, 60, 40), ('waits', 'a', 0, 20, 20), ('waits', 'a', 0, 90, 10), ('waits', 'b', 0, 5, 5),
  ('waits', 'a', 0, 99, -3600), ('waits', 'a', 0, 99, -3600), ('waits', 'b', 2, 99, -60), ('dead', 'b', 5, 99, 60),
  ('done', 'a', 1, 99, 99)
) AS jobs (state, tenant, runs, created, due);
INSERT INTO good_job_processes (state) VALUES
  ('{"schedulers": [{"queues": "*", "max_threads": 5}, {"queues": "-orders", "max_threads": 5}]}'),
  ('{"schedulers": [{"queues": "+mail,orders", "max_threads": 5}]}'), ('{}')"""
PGMQ = """
INSERT INTO pgmq.q_orders (message, read_ct, enqueued_at, vt, last_read_at)
SELECT jsonb_build_object('tenant', tenant), reads, t - enqueued * s, t - visible * s,
  CASE WHEN reads > 0 THEN t - 30 * s END
FROM (SELECT now() AS t, interval '1 second' AS s) AS clock, (VALUES
  ('a', 1, 40, -3600), ('a', 0, 20, 20), ('a', 0, 90, 10), ('b', 2, 5, 3), ('a', 0, 99, -3600), ('a', 0, 99, -3600),
  ('b', 0, 99, -60)
) AS messages (tenant, reads, enqueued, visible);
INSERT INTO pgmq.a_orders SELECT n, 1, now(), now(), now(), now(), '{}', '{}' FROM generate_series(1, 10) AS n;
INSERT INTO pgmq.q_old (read_ct, vt) VALUES (1, now() + interval '1 hour')"""
JOBS = {"oban": OBAN, "solid_queue": SOLID_QUEUE, "good_job": GOOD_JOB, "pgmq": PGMQ}
#: The library's word for what is dead, and how many consumers it tells of.
TELLS = {"oban": ("discarded", 2), "solid_queue": ("failed", 2), "good_job": ("discarded", 2), "pgmq": (None, None)}


@pytest.mark.parametrize(("began", "consumers"), [(30, None), (90, 0)])
def test_who_begins_jobs_and_is_on_no_list_makes_consumers_unknown(
    began: int, consumers: int | None, database: Database
) -> None:
    database.schema("oban")
    at = f"now() AT TIME ZONE 'UTC' - interval '{began} seconds'"
    columns = "queue, worker, state, attempt, scheduled_at, attempted_at"
    database.run(f"INSERT INTO oban_jobs ({columns}) VALUES ('orders', 'W', 'executing', 1, {at}, {at})")
    orders = database.read(oban={})["orders"]
    assert (orders.in_flight, orders.consumers) == (1, consumers)
    assert ("none is listed" in orders.unavailable.get("consumers", "")) is (consumers is None)


@pytest.mark.parametrize("layout", JOBS)
def test_jobs_are_counted_by_what_they_wait_for_in_tables_as_the_library_makes_them(
    layout: str, database: Database, note: Note
) -> None:
    database.schema(layout)
    database.run(JOBS[layout])
    samples = database.read(**{layout: {"tenant": "json:tenant"}})
    word, consumers = TELLS[layout]
    orders = samples["orders"]
    counts = orders.depth, orders.in_flight, orders.delayed, orders.retrying, orders.consumers
    assert counts == (3, 1, 3, 1, consumers)
    assert orders.oldest_age_seconds == pytest.approx(40, abs=NEAR + 5)
    assert orders.oldest_age_seconds is not None and orders.oldest_age_seconds >= 40
    assert orders.oldest_first_attempt_age_seconds == pytest.approx(orders.oldest_age_seconds - 20, abs=NEAR)
    assert orders.oldest_in_flight_age_seconds == pytest.approx(orders.oldest_age_seconds - 10, abs=NEAR)
    assert orders.tenants is not None
    assert {share.tenant: counted(share) for share in orders.tenants} == {"a": (2, 1, 2), "b": (1, 0, 1)}
    if word is not None:
        dead = samples[f"orders.{word}"]
        assert (dead.depth, dead.dead_letter_for) == (1, "orders")
        assert dead.oldest_age_seconds == pytest.approx(orders.oldest_age_seconds + 10, abs=NEAR)
    if layout == "oban":
        assert (samples["idle"].depth, samples["idle"].consumers) == (0, 1), "a queue that waits for jobs"
    if layout == "solid_queue":
        assert (orders.state, orders.status) == ("paused", "PAUSED")
    if layout == "pgmq":
        assert samples["old"].in_flight == 1 and samples["old"].oldest_in_flight_age_seconds is None
    note(
        *measured(layout, [orders]), (layout, "per tenant", BY_PATH), (layout, "cluster shapes", "by its tables alone")
    )
    if word is not None:
        note((layout, "dead letters", f"its {word} jobs"))


def test_every_layout_has_its_settings() -> None:
    assert set(PostgresBroker(name="pg", kind="postgres", url="postgresql://db").chosen()) == set(LAYOUTS)
