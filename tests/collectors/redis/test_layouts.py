"""What libraries keep in a real server is told as it is."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Exchange
from kombu import Queue as KombuQueue

from collectors.samples import Sample
from examples.redis_queue.recipe import Queue
from tests.collectors.redis import making
from tests.collectors.redis.reading import counts, named, read, source
from tests.support.facts import Note, measured, proves
from tests.support.redis import RedisServer, prepare
from tests.support.waiting import wait_until


def since(sample: Sample, then: float) -> Any:
    """The age at the time of ``sample`` of what is from ``then``, in seconds since 1970."""
    return pytest.approx(sample.sampled_at / 1e6 - then, abs=0.001)


def test_what_was_prepared_is_told_without_any_settings(redis_server: RedisServer) -> None:
    expected = prepare(redis_server)
    found = {queue: sample for (queue, _), sample in read(redis_server).items()}
    assert set(found) == set(expected)
    for queue, numbers in expected.items():
        assert {name: getattr(found[queue], name) for name in numbers} == numbers


def test_shards_of_a_recipe_queue_are_summed_and_its_first_due_times_give_the_exact_age(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        queue = Queue(client, "orders", shards=("a", "b", "c"), visibility=60)
        for number in range(30):
            queue.push({"number": number}, priority=number % 100)
        for number in range(4):
            queue.push({"number": number}, delay=300)
        time.sleep(0.3)
        assert len(queue.poll(7)) == 7
        held = client.zcard("app.UNACK.{orders.a}.0")
    sample = read(redis_server, dyno={"prefix": "app"})["orders", None]
    assert held
    assert counts(sample) == (23, 7, 4)
    assert sample.oldest_age_seconds is not None
    assert sample.oldest_age_seconds >= 0.3


def test_a_redelivered_message_keeps_its_age_by_the_index_and_starts_anew_without(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        queue = Queue(client, "orders", visibility=0.01)
        queue.push("it")
        time.sleep(0.5)
        queue.poll()
        time.sleep(0.02)
        assert queue.sweep() == 1
        exact = read(redis_server, dyno={})["app.orders", None].oldest_age_seconds
        client.delete("app.SINCE.{orders.a}")
        since_its_deadline = read(redis_server, dyno={})["app.orders", None].oldest_age_seconds
    assert exact is not None and since_its_deadline is not None
    assert exact - since_its_deadline >= 0.5 - 0.2


def test_messages_that_are_all_in_flight_have_no_known_age_and_those_that_are_not_due_have_none(
    redis_server: RedisServer,
) -> None:
    now = time.time() * 1000
    with redis_server.client() as client:
        client.zadd("app.UNACK.{taken.a}.0", {"m": now + 60_000})
        client.zadd("app.QUEUE.{later.a}", {"m": now + 60_000})
    found = read(redis_server, dyno={"prefix": "app"})
    for name, numbers in {"taken": (0, 1, 0), "later": (0, 0, 1)}.items():
        assert counts(found[name, None]) == numbers
    assert (found["taken", None].oldest_age_seconds, found["later", None].oldest_age_seconds) == (None, 0.0)


def test_both_key_shapes_of_the_library_are_read_with_all_their_buckets(redis_server: RedisServer) -> None:
    now = time.time() * 1000
    with redis_server.client() as client:
        client.zadd("app.QUEUE.old.1a", {"m1": now - 2000})
        client.zadd("app.QUEUE.old.1b", {"m2": now - 9000.5})
        client.zadd("app.UNACK.old.1b", {"m3": now})
        client.hset("app.MESSAGE.old", "m1", "{}")
        client.zadd("app.QUEUE.{new.1a}", {"m1": now - 1000})
        for bucket in (0, 7, 31):
            client.zadd(f"app.UNACK.{{new.1a}}.{bucket}", {f"u{bucket}": now})
    found = read(redis_server, dyno={"prefix": "app"})
    assert counts(found["old", None]) == (2, 1, 0)
    assert found["old", None].oldest_age_seconds == since(found["old", None], (now - 9000.5) // 1 / 1000)
    assert counts(found["new", None]) == (1, 3, 0)


def test_listed_shards_are_read_by_name_also_where_nothing_is(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.zadd("app.UNACK.{orders.b}.31", {"m": 1})
    layout = {"prefix": "app", "queues": ["orders", "none"], "shards": ["a", "b"], "unack_buckets": 32}
    found = read(redis_server, dyno=layout)
    assert counts(found["orders", None]) == (0, 1, 0)
    assert counts(found["none", None]) == (0, 0, 0)
    assert found["none", None].oldest_age_seconds == 0.0


async def test_a_drained_queue_is_empty_and_a_new_one_is_found(redis_server: RedisServer) -> None:
    one = source(redis_server, dyno={"prefix": "app"})
    await one.open()
    with redis_server.client() as client:
        client.zadd("app.QUEUE.{orders.a}", {"m": 1})
        assert counts(named(await one.read())["orders", None]) == (1, 0, 0)
        client.delete("app.QUEUE.{orders.a}")
        client.zadd("app.QUEUE.{later.a}", {"m": 1})
        await one.read()
        found = named(await one.read())
    await one.close()
    assert counts(found["orders", None]) == (0, 0, 0)
    assert found["orders", None].oldest_age_seconds == 0.0
    assert counts(found["later", None]) == (1, 0, 0)


async def test_a_queue_without_keys_is_forgotten_in_the_end(redis_server: RedisServer) -> None:
    one = source(redis_server, dyno={"prefix": "app", "forget_after": 0.2})
    await one.open()
    with redis_server.client() as client:
        client.zadd("app.QUEUE.{orders.a}", {"m": 1})
        assert len(await one.read()) == 1
        client.flushall()
    for _ in range(2):
        await asyncio.sleep(0.3)
        found = await one.read()
    await one.close()
    assert found == []


def test_each_group_of_a_stream_is_a_subscriber_with_the_age_of_what_it_has_not_processed(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        times = making.streams(client)
    found = read(redis_server, streams={})
    billing, audit = found["events", "billing"], found["events", "audit"]
    assert counts(billing) == (2, 2, 0)
    assert (billing.consumers, billing.published_total, billing.delivered_total) == (1, 5, 3)
    assert billing.oldest_age_seconds == since(billing, times[1])  # the first entry is acknowledged
    assert counts(audit) == (5, 0, 0)
    assert audit.oldest_age_seconds == since(audit, times[0])


def test_a_lag_that_redis_lost_is_unknown_not_zero(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        ids = [client.xadd("events", {"number": number}) for number in range(5)]
        client.xgroup_create("events", "billing", id="0")
        client.xreadgroup("billing", "one", {"events": ">"}, count=1)
        client.xdel("events", ids[2])
    sample = read(redis_server, streams={"keys": ["events"]})["events", "billing"]
    assert sample.depth is None
    assert "lag" in sample.unavailable["depth"]
    assert sample.in_flight == 1
    assert sample.oldest_age_seconds is not None


def test_ids_that_are_no_times_give_no_age(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.xadd("events", {"a": 1}, id="1-1")
        client.xgroup_create("events", "billing", id="0")
    sample = read(redis_server, streams={})["events", "billing"]
    assert (sample.depth, sample.oldest_age_seconds) == (1, None)


async def test_redeliveries_of_a_group_are_counted_up(redis_server: RedisServer) -> None:
    one = source(redis_server, streams={"keys": ["events"]})
    await one.open()
    with redis_server.client() as client:
        making.streams(client)
        totals = [named(await one.read())["events", "billing"].redelivered_total]
        for _ in range(2):
            client.xautoclaim("events", "billing", "two", 0, count=100)
        totals.append(named(await one.read())["events", "billing"].redelivered_total)
        pending = client.xpending_range("events", "billing", "-", "+", 10)
        client.xack("events", "billing", *[entry["message_id"] for entry in pending])
        totals.append(named(await one.read())["events", "billing"].redelivered_total)
        client.delete("events")
        assert await one.read() == []  # gone: left out
        making.streams(client)
        totals.append(named(await one.read())["events", "billing"].redelivered_total)
    await one.close()
    assert totals == [0, 4, 4, 0]


def test_a_stream_that_no_group_reads_is_a_log_without_a_depth_and_rqs_results_are_no_queues(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        for name in ("mail:events", "inbox:mail"):
            client.xadd(name, {"a": 1}, id="1600000000000-0")
        client.xadd("rq:results:1", {"a": 1})
        found = read(redis_server, streams={})
        assert set(found) == {("mail:events", None), ("inbox:mail", None)}
        log = found["mail:events", None]
        assert (log.depth, log.oldest_age_seconds, log.consumers, log.published_total) == (None, None, 0, 1)
        assert "no consumer group reads it" in log.unavailable["depth"]
        assert "no consumer group reads it" in log.unavailable["oldest_age_seconds"]
        known_better = read(redis_server, streams={"backlogs": ["inbox:*"]})
        assert known_better["mail:events", None].depth is None
        waiting = known_better["inbox:mail", None]
        assert counts(waiting) == (1, 0, 0) and (waiting.oldest_age_seconds or 0) > 1e6
        client.xgroup_create("mail:events", "late", id="0")
    assert counts(read(redis_server, streams={})["mail:events", "late"]) == (1, 0, 0)


def test_bullmqs_events_are_a_queue_only_where_a_group_reads_them_or_they_are_asked_for(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        client.xadd("{shop}:mail:events", {"a": 1})
        client.hset("{shop}:mail:meta", "opts.maxLenEvents", 10_000)  # as BullMQ writes it beside each queue
        assert not read(redis_server, streams={})
        named = read(redis_server, streams={"keys": ["{shop}:mail:events"]})
        assert named["{shop}:mail:events", None].published_total == 1
        client.xgroup_create("{shop}:mail:events", "audit", id="0")
    assert counts(read(redis_server, streams={})["{shop}:mail:events", "audit"]) == (1, 0, 0)


@proves("celery", "cluster shapes", "Celery 5.7 itself")
def test_real_celery_tells_waiting_at_work_and_held_back_apart(redis_server: RedisServer, note: Note) -> None:
    with making.celery_at_work(redis_server) as oldest:
        found = read(redis_server, celery={})
        few = read(redis_server, celery={"queues": ["celery"], "read_at_most": 2})
    assert set(found) == {("celery", None), ("mail", None)}
    assert counts(found["celery", None]) == (4, 1, 2)
    assert found["celery", None].oldest_age_seconds == since(found["celery", None], oldest)
    assert counts(found["mail", None]) == (1, 0, 0)
    assert found["mail", None].oldest_age_seconds is None
    assert counts(few["celery", None]) == (5, 1, None)
    note(*measured("celery", [found["celery", None]]))


def test_a_celery_task_with_an_eta_or_countdown_waits_from_then_on_however_long_ago_it_was_sent(
    redis_server: RedisServer,
) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=1)
    with making.app.connection_for_write(redis_server.url) as connection:
        sent = {"enqueued_at": time.time() - 120}
        making.slow.apply_async(queue="mail", eta=eta, headers=sent, connection=connection)
        making.slow.apply_async(queue="later", countdown=600, headers=sent, connection=connection)
    wait_until(lambda: datetime.now(UTC) > eta, "the task to be due")
    found = read(redis_server, celery={})
    assert counts(found["mail", None]) == (1, 0, 0)
    assert found["mail", None].oldest_age_seconds == since(found["mail", None], eta.timestamp())
    assert counts(found["later", None]) == (0, 0, 1)
    assert found["later", None].oldest_age_seconds == 0.0


def test_celery_queues_bound_by_a_topics_pattern_are_told_and_celerys_own_are_not(redis_server: RedisServer) -> None:
    topic = Exchange("news", type="topic")
    bound = [KombuQueue("eu", topic, routing_key="news.eu.*"), KombuQueue("plain", topic, routing_key="news.us")]
    bound += [KombuQueue(f"both-{name}", Exchange("twice"), routing_key="twice") for name in "ab"]
    with making.app.connection_for_write(redis_server.url) as connection:
        mailbox = making.app.control.mailbox(connection).get_reply_queue()
        events = KombuQueue("celeryev.1", Exchange("celeryev", type="topic"), routing_key="#")
        results = KombuQueue(making.app.oid, Exchange("results"), routing_key=making.app.oid)
        for queue in (*bound, mailbox, events, results):
            queue(connection.default_channel).declare()
        with connection.Producer() as producer:
            for key in ("news.eu.fr", "news.eu.de", "news.us", "news.eu.fr.paris"):
                producer.publish({}, exchange=topic, routing_key=key)
            producer.publish({}, exchange="twice", routing_key="twice")
        channel = connection.channel()
        for name in ("eu", "both-a"):
            assert channel.basic_get(name)
        found = read(redis_server, celery={})
        listed = read(redis_server, celery={"queues": ["eu", "both-b"]})
        with_plumbing = read(redis_server, celery={"plumbing": True})
        channel.close()
    assert {queue for queue, _ in found} == {"eu", "plain", "both-a", "both-b"}
    assert {queue for queue, _ in with_plumbing} == {
        "celeryev.1",
        mailbox.name,
        results.name,
        *(queue for queue, _ in found),
    }
    for one in (found, listed):
        assert counts(one["eu", None]) == (1, 1, 0)
        assert counts(one["both-b", None]) == (1, None, None)
        assert "whose it is" in one["both-b", None].unavailable["in_flight"]
    assert counts(found["plain", None]) == (1, 0, 0)


def test_behind_tasks_that_are_not_due_the_oldest_that_is_due_tells_the_age(redis_server: RedisServer) -> None:
    then = time.time() - 50
    with redis_server.client() as client:
        ready = json.dumps({"headers": {"enqueued_at": then}})
        later = json.dumps({"headers": {"enqueued_at": then - 500, "eta": "2999-01-01T00:00:00+00:00"}})
        client.rpush("mail", *[ready] * 50, *[later] * 7)  # the last is the next to be taken
    found = read(redis_server, celery={"queues": ["mail"], "read_at_most": 10})["mail", None]
    assert found.oldest_age_seconds == since(found, then)
    few = read(redis_server, celery={"queues": ["mail"], "read_at_most": 5})["mail", None]
    assert (few.depth, few.oldest_age_seconds) == (57, None)
    assert "not due yet" in few.unavailable["oldest_age_seconds"]


@proves("rq", "dead letters", "the failed registry of each queue")
@proves("rq", "cluster shapes", "RQ 2.12 itself")
def test_real_rq_tells_its_queue_its_registries_and_its_dead_letters(redis_server: RedisServer, note: Note) -> None:
    with making.rq_at_work(redis_server):
        found = read(redis_server, rq={})
    assert set(found) == {("default", None), ("default.failed", None)}
    default, failed = found["default", None], found["default.failed", None]
    assert counts(default) == (2, 1, 3)
    assert default.consumers == 1
    assert default.oldest_age_seconds is not None
    assert (failed.depth, failed.dead_letter_for) == (1, "default")
    note(*measured("rq", [default]))


def test_queues_of_one_name_in_two_layouts_stay_apart(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.lpush("default", '{"headers": {}}')
        client.sadd("rq:queues", "rq:queue:default", "rq:queue:reports")
        client.zadd("rq:failed:default", {"a": 1e10})
    found = read(redis_server, celery={"queues": ["default"]}, rq={})
    assert counts(found["default", None]) == (1, 0, 0)
    assert counts(found["rq:default", None]) == (0, 0, 0)
    assert (found["default.failed", None].depth, found["default.failed", None].dead_letter_for) == (1, "rq:default")
    assert found["reports.failed", None].dead_letter_for == "reports"
