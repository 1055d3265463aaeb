"""What BullMQ itself put into a real server is told as it is; Pro's groups by recorded keys."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collectors.samples import was_read
from tests.collectors.redis.reading import counts, read
from tests.support.bullmq import produce, redrive, worker
from tests.support.facts import proves
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

BY_TENANT = {"tenant": "json:tenant.id"}


def job(tenant: str, queue: str = "orders", **opts: Any) -> dict[str, Any]:
    """A job that is at work, or waits, for as long as any test."""
    return {"queue": queue, "name": "work", "data": {"tenant": {"id": tenant}, "seconds": 600}, "opts": opts}


def broken(**opts: Any) -> dict[str, Any]:
    return {"queue": "orders", "name": "broken", "opts": opts}


@dataclass(frozen=True)
class Scene:
    """A server on which BullMQ is in the middle of its work, and when each job that is there was added."""

    server: RedisServer
    working: list[dict[str, Any]]
    waiting: list[dict[str, Any]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """``orders``: 2 at work, 3 wait (1 by priority), 1 delayed, 1 backs off, 1 failed, 1 parent waits for its child.

    ``mail`` is paused, 1 waits, nobody works on it.
    """
    server = RedisServer(tmp_path_factory.mktemp("bullmq"))
    with server, server.client() as client, worker(server, "orders"):
        again = broken(attempts=3, backoff={"type": "fixed", "delay": 900_000})
        produce(server, {"queue": "orders", "name": "quick"}, broken(), again)
        wait_until(lambda: client.zcard("bull:orders:delayed") == 1, "a job that backs off")
        wait_until(lambda: client.hget("bull:orders:metrics:completed", "count"), "a job to be completed")
        working = produce(server, job("grove"), job("grove"))
        wait_until(lambda: client.llen("bull:orders:active") == 2, "two jobs at work")
        child = {"name": "work", "queueName": "parts", "data": {}}
        told = produce(
            server,
            job("acme"),
            job("acme"),
            job("grove", priority=7),
            job("acme", delay=900_000),
            {"flow": {"name": "work", "queueName": "orders", "data": {}, "children": [child]}},
            job("acme", "mail"),
            {"pause": "mail"},
        )
        yield Scene(server, working, told)


@proves("bullmq", "dead letters", "the failed set of each queue")
def test_each_queue_is_told_as_bullmq_keeps_it(scene: Scene) -> None:
    found = read(scene.server, bullmq={})
    assert {name for name, _ in found} == {
        *("mail", "mail.failed", "orders", "orders.failed", "parts", "parts.failed"),
    }
    orders, mail = found["orders", None], found["mail", None]
    assert counts(orders) == (3, 2, 3)
    assert (orders.retrying, orders.consumers, orders.state, orders.acked_total) == (1, 1, "running", 1)
    assert orders.published_total == 10
    assert counts(mail) == (1, 0, 0)
    assert (mail.consumers, mail.state, mail.status) == (0, "paused", "PAUSED") and "status" not in mail.unavailable
    assert "metrics" in mail.unavailable["acked_total"]
    failed = found["orders.failed", None]
    assert (counts(failed), failed.dead_letter_for) == ((1, 0, 0), "orders")


@proves("bullmq", "age", "within 0.1 s of what the producer noted")
def test_ages_are_those_that_the_producer_noted(scene: Scene) -> None:
    found = read(scene.server, bullmq={})
    orders, mail = found["orders", None], found["mail", None]
    at = orders.sampled_at / 1e6
    assert orders.oldest_age_seconds == pytest.approx(at - scene.working[0]["after"], abs=0.1)
    assert orders.oldest_first_attempt_age_seconds == pytest.approx(at - scene.waiting[0]["after"], abs=0.1)
    assert orders.oldest_in_flight_age_seconds == pytest.approx(at - scene.working[0]["after"], abs=0.1)
    assert mail.oldest_age_seconds == pytest.approx(at - scene.waiting[5]["after"], abs=0.1)


def test_ages_are_the_same_where_the_ends_alone_are_looked_into(scene: Scene) -> None:
    whole = read(scene.server, bullmq={})["orders", None]
    ends = read(scene.server, bullmq={"read_at_most": 5})["orders", None]
    none = read(scene.server, bullmq={"jobs_per_cycle": 0})["orders", None]
    for one in (ends, none):
        assert counts(one) == counts(whole)
        shift = (one.sampled_at - whole.sampled_at) / 1e6
        for name in ("oldest_age_seconds", "oldest_first_attempt_age_seconds", "oldest_in_flight_age_seconds"):
            assert getattr(one, name) == pytest.approx(getattr(whole, name) + shift, abs=0.001)
        assert one.retrying is None and "not every job" in one.unavailable["retrying"]


@proves("bullmq", "per tenant", "by a JSON path of the job's data, its id, or the queue's name")
def test_each_tenants_share_is_told_where_a_path_names_it(scene: Scene) -> None:
    orders = read(scene.server, bullmq=BY_TENANT)["orders", None]
    told = {share.tenant: (share.depth, share.in_flight, share.delayed) for share in orders.tenants or ()}
    assert told == {"acme": (2, 0, 1), "grove": (1, 2, 0), "unknown": (0, 0, 1)}
    (acme,) = [share for share in orders.tenants or () if share.tenant == "acme"]
    assert acme.oldest_age_seconds == pytest.approx(orders.sampled_at / 1e6 - scene.waiting[0]["after"], abs=0.1)
    few = read(scene.server, bullmq={**BY_TENANT, "read_at_most": 3})["orders", None]
    assert few.tenants is None and "8 jobs" not in few.unavailable["tenants"]


@proves("bullmq", "dead letters", "sent back by BullMQ's own API")
def test_a_job_that_nobody_holds_any_more_makes_the_queue_stalled_and_failed_jobs_go_back(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server, server.client() as client:
        with worker(server, "orders"):
            produce(server, job("acme"), broken())
            wait_until(lambda: client.zcard("bull:orders:failed") == client.llen("bull:orders:active") == 1, "both")
        (lock,) = client.keys("bull:orders:*:lock")
        client.delete(lock)  # it expires 30 s after the worker's last sign of life
        before = read(server, bullmq={})
        assert (counts(before["orders", None]), before["orders", None].state) == ((0, 1, 0), "stalled")
        assert counts(before["orders.failed", None]) == (1, 0, 0)
        assert redrive(server, "orders")["sent"] == 1
        after = read(server, bullmq={})
    assert counts(after["orders", None]) == (1, 1, 0)
    assert after["orders", None].retrying == 1
    assert counts(after["orders.failed", None]) == (0, 0, 0)


def put(client: Any, queue: str, id: str, age: float, prefix: str = "bull", **more: Any) -> None:
    """A job's hash as BullMQ's storeJob.lua writes it, and the queue's meta."""
    fields = {"name": "work", "data": "{}", "opts": "{}", "timestamp": int((time.time() - age) * 1000), **more}
    client.hset(f"{prefix}:{queue}:{id}", mapping=fields)
    client.hset(f"{prefix}:{queue}:meta", "opts.maxLenEvents", 10000)


@proves("bullmq", "cluster shapes", "BullMQ 6.7 itself; version 4's markers and Pro's groups by recorded keys")
def test_what_is_due_and_markers_and_priorities_and_groups_by_keys_as_they_are_written(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        put(client, "late", "1", 100, opts=json.dumps({"delay": 40_000}))
        client.zadd("bull:late:delayed", {"1": int((time.time() - 60) * 1000) * 4096})
        put(client, "old", "1", 30)
        client.rpush("bull:old:wait", "1", "0:1700000000000")  # version 4's marker is the next to be taken
        for number in range(1, 6):
            put(client, "ranked", str(number), 10 * number)
            client.zadd("bull:ranked:prioritized", {str(number): number * 2**32 + 1})
        put(client, "pro", "1", 10)
        client.zadd("bull:pro:groups", {"a": 1, "b": 2})
        client.rpush("bull:pro:groups:a", "1", "2")
        client.rpush("bull:pro:groups:b", "3")
    found = read(redis_server, bullmq={"read_at_most": 4})
    late, old, ranked, pro = (found[name, None] for name in ("late", "old", "ranked", "pro"))
    assert counts(late) == (1, 0, 0)
    assert late.oldest_age_seconds == pytest.approx(60, abs=5)
    assert counts(old) == (1, 0, 0)
    assert old.oldest_age_seconds == pytest.approx(30, abs=5)
    assert counts(ranked) == (5, 0, 0)
    assert ranked.oldest_age_seconds == pytest.approx(50, abs=5)
    assert counts(pro) == (3, 0, 0)
    assert "groups are counted" in pro.unavailable["oldest_age_seconds"]
    with redis_server.client() as client:
        client.zadd("bull:pro:groups", {str(number): number for number in range(9)})
        client.zadd("bull:ranked:prioritized", {str(number): number * 2**32 for number in range(20)})
    found = read(redis_server, bullmq={"read_at_most": 4})
    assert found["pro", None].depth is None and "groups" in found["pro", None].unavailable["depth"]
    assert "priorities" in found["ranked", None].unavailable["oldest_age_seconds"]


def test_a_prefix_of_ones_own_is_read_and_no_other(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        put(client, "orders", "1", 5, "{shop}")
        client.rpush("{shop}:orders:wait", "1")
        put(client, "other", "1", 5)
    found = read(redis_server, bullmq={"prefix": "{shop}"})
    assert {name for name, _ in found} == {"orders", "orders.failed"}
    listed = read(redis_server, bullmq={"prefix": "{shop}", "queues": ["orders", "none"]})
    assert counts(listed["orders", None]) == (1, 0, 0)
    assert counts(listed["none", None]) == (0, 0, 0)


def test_garbage_is_its_own_queues_trouble(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        put(client, "wrong", "1", 5)
        client.set("bull:wrong:wait", "a string")
        put(client, "garbage", "1", 5, timestamp="never", opts="[" * 5000, data="\x83\xa3", ats="x")
        client.rpush("bull:garbage:wait", "1", "no such job")
        put(client, "huge", "1", 5, data=json.dumps({"tenant": {"id": "acme"}, "x": "x" * (3 << 20)}))
        client.rpush("bull:huge:wait", "1")
        put(client, "ahead", "1", -3600)
        client.rpush("bull:ahead:wait", "1")
    found = read(redis_server, bullmq=BY_TENANT)
    assert {queue for (queue, _), sample in found.items() if not was_read(sample)} == {"wrong"}
    garbage = found["garbage", None]
    assert counts(garbage) == (2, 0, 0)
    assert "does not tell when" in garbage.unavailable["oldest_age_seconds"]
    assert [(one.tenant, one.depth) for one in found["huge", None].tenants or ()] == [("unknown", 1)]
    assert found["huge", None].oldest_age_seconds == pytest.approx(5, abs=5)
    assert found["ahead", None].oldest_age_seconds == 0.0


@proves("bullmq", "auth", "what a user may not ask is said")
def test_what_may_not_be_asked_is_said_with_what_is_missing(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        put(client, "orders", "1", 5)
        client.rpush("bull:orders:wait", "1")
        rules = ["on", "nopass", "%R~*", "+@read", "+time", "+role", "-client|list"]
        client.execute_command("ACL", "SETUSER", "sojourn", *rules)
        client.execute_command("ACL", "SETUSER", "narrow", "on", "nopass", "%R~bull:*:meta", "+@read", "+time", "+info")
    told = read(own_redis, user="sojourn", bullmq={})["orders", None]
    assert (told.depth, told.consumers) == (1, None)
    assert "info" in told.unavailable["consumers"]
    narrow = read(own_redis, user="narrow", bullmq={})["orders", None]
    assert not was_read(narrow) and "NOPERM" in narrow.unavailable["depth"]
