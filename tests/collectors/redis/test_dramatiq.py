"""What Dramatiq itself put into a real server is told as it is."""

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
from tests.support.dramatiq import redrive, send, worker
from tests.support.facts import Note, measured, proves
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

BY_TENANT = {"tenant": "json:args[0]"}


def work(tenant: str, **more: Any) -> dict[str, Any]:
    """A message that is at work, or waits, for as long as any test."""
    return {"actor": "work", "args": [tenant, 600], **more}


@dataclass(frozen=True)
class Scene:
    """A server on which Dramatiq is in the middle of its work, and when each message that is there was sent."""

    server: RedisServer
    working: list[dict[str, Any]]
    waiting: list[dict[str, Any]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """``default``: 4 held by a worker of two threads (it takes four), 3 wait, 1 delayed, 1 backs off, 1 dead letter.

    ``mail``: 1 waits, nobody works on it.
    """
    server = RedisServer(tmp_path_factory.mktemp("dramatiq"))
    with server, server.client() as client, worker(server.url, "default"):
        send(server.url, {"actor": "doomed"}, {"actor": "broken"})
        wait_until(lambda: client.zcard("dramatiq:default.XQ") and client.hlen("dramatiq:default.DQ.msgs"), "failures")
        working = send(server.url, *(work("grove") for _ in range(4)))
        wait_until(lambda: client.llen("dramatiq:default") == 0, "the worker to hold four")
        waiting = send(
            server.url,
            work("acme"),
            work("acme"),
            work("grove"),
            work("acme", delay=900_000),
            work("acme", queue="mail"),
        )
        yield Scene(server, working, waiting)


@proves("dramatiq", "cluster shapes", "Dramatiq 2.2 itself")
@proves("dramatiq", "dead letters", "the queue's .XQ; on RabbitMQ by its arguments")
def test_each_queue_is_told_as_dramatiq_keeps_it(scene: Scene) -> None:
    found = read(scene.server, dramatiq={})
    assert {name for name, _ in found} == {"default", "default.XQ", "mail", "mail.XQ"}
    default, dead = found["default", None], found["default.XQ", None]
    assert (counts(default), default.retrying, default.state) == ((3, 4, 2), 1, "running")
    assert (counts(dead), dead.dead_letter_for) == ((1, 0, 0), "default")
    assert counts(found["mail", None]) == (1, 0, 0)


@proves("dramatiq", "age", "within 0.1 s of what the producer noted")
def test_ages_are_those_that_the_producer_noted(scene: Scene) -> None:
    default = read(scene.server, dramatiq={})["default", None]
    at = default.sampled_at / 1e6
    assert default.oldest_age_seconds == pytest.approx(at - scene.working[0]["after"], abs=0.1)
    assert default.oldest_first_attempt_age_seconds == pytest.approx(at - scene.waiting[0]["after"], abs=0.1)


@proves("dramatiq", "per tenant", "by a JSON path of the message, or the queue's name")
def test_each_tenants_share_is_told_where_a_path_names_it(scene: Scene) -> None:
    default = read(scene.server, dramatiq=BY_TENANT)["default", None]
    told = {share.tenant: (share.depth, share.in_flight, share.delayed) for share in default.tenants or ()}
    assert told == {"grove": (1, 4, 0), "acme": (2, 0, 1), "unknown": (0, 0, 1)}
    few = read(scene.server, dramatiq={**BY_TENANT, "read_at_most": 2})["default", None]
    assert few.tenants is None and few.retrying is None and few.depth == 3
    assert few.oldest_age_seconds == pytest.approx(default.oldest_age_seconds or 0, abs=5)


@proves("dramatiq", "dead letters", "sent back by an application's own means")
def test_a_dead_workers_messages_make_the_queue_stalled_and_dead_letters_go_back(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server, server.client() as client:
        with worker(server.url, "default"):
            send(server.url, work("acme"), {"actor": "doomed"})
            wait_until(lambda: client.zcard("dramatiq:default.XQ"), "the dead letter")
        beats = client.zrange("dramatiq:__heartbeats__", 0, -1)
        client.zadd("dramatiq:__heartbeats__", {who: (time.time() - 90) * 1000 for who in beats})
        before = read(server, dramatiq={})
        assert (counts(before["default", None]), before["default", None].state) == ((0, 1, 0), "stalled")
        assert len(redrive(server.url, "default")) == 1
        after = read(server, dramatiq={})
    assert counts(after["default", None]) == (1, 1, 0)
    assert counts(after["default.XQ", None]) == (0, 0, 0)


def test_garbage_and_other_encoders_are_their_own_queues_trouble(redis_server: RedisServer) -> None:
    with redis_server.client() as client:

        def put(queue: str, body: bytes | str) -> None:
            client.rpush(f"dramatiq:{queue}", "id")
            client.hset(f"dramatiq:{queue}.msgs", "id", body)

        put("msgpack", b"\x88\xaaqueue_name\xa7default")
        put("deep", "[" * 5000)
        put("huge", json.dumps({"message_timestamp": 1, "args": ["x" * (3 << 20)], "options": {}}))
        put("ahead", json.dumps({"message_timestamp": (time.time() + 3600) * 1000, "options": {}}))
        client.set("dramatiq:wrong", "a string")
        client.hset("dramatiq:wrong.msgs", "id", "{}")
        client.rpush("dramatiq:orphan", "no body")
        client.hset(
            "dramatiq:orphan.DQ.msgs", "late", json.dumps({"message_timestamp": 1e12, "options": {"eta": 1e12}})
        )
    found = read(redis_server, dramatiq=BY_TENANT)
    assert {queue for (queue, _), sample in found.items() if not was_read(sample)} == {"wrong"}
    for name in ("msgpack", "deep"):
        assert found[name, None].depth == 1
        assert "JSON alone" in found[name, None].unavailable["oldest_age_seconds"]
    assert "too much to look into" in found["huge", None].unavailable["oldest_age_seconds"]
    assert found["ahead", None].oldest_age_seconds == 0.0
    assert counts(found["orphan", None]) == (2, 0, 0)  # what is due waits, though nobody moved it


def test_delayed_messages_are_looked_into_up_to_ten_times_as_many_as_wait(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        eta = json.dumps({"message_timestamp": 1e12, "options": {"eta": (time.time() + 600) * 1000}})
        client.hset("dramatiq:default.DQ.msgs", mapping={str(number): eta for number in range(150)})
    assert counts(read(redis_server, dramatiq={})["default", None]) == (0, 0, 150)
    few = read(redis_server, dramatiq={"read_at_most": 14})["default", None]
    assert few.delayed is None and "150 messages are delayed" in few.unavailable["delayed"]


@proves("resque", "per tenant", "by a JSON path of the job, or the queue's name")
@proves("resque", "dead letters", "the failed list")
@proves("resque", "cluster shapes", "by keys as it writes them")
def test_resque_is_read_by_keys_as_it_writes_them(redis_server: RedisServer, note: Note) -> None:
    now = time.time()
    stamp = lambda age: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - age))  # noqa: E731
    with redis_server.client() as client:
        client.sadd("resque:queues", "mail", "plain", "wrong")
        active = {"class": "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper"}
        for age, tenant in ((50, "acme"), (30, "grove")):
            job = {**active, "args": [{"job_class": "Mail", "tenant": tenant, "enqueued_at": stamp(age)}]}
            client.rpush("resque:queue:mail", json.dumps(job))
        client.rpush("resque:queue:plain", json.dumps({"class": "Work", "args": [1]}))
        client.set("resque:queue:wrong", "a string")
        client.sadd("resque:workers", "host:1:mail,plain", "host:2:*")
        work = {
            "queue": "mail",
            "run_at": stamp(20),
            "payload": {"class": "Work", "args": [{"enqueued_at": stamp(70)}]},
        }
        client.set("resque:worker:host:1:mail,plain", json.dumps(work))
        client.rpush("resque:failed", json.dumps({"failed_at": stamp(90), "queue": "mail", "payload": {}}))
    found = read(redis_server, resque={"tenant": "json:args[0].tenant"})
    mail, plain, failed = found["mail", None], found["plain", None], found["resque.failed", None]
    assert (counts(mail), mail.consumers) == ((2, 1, None), 2)
    assert mail.oldest_age_seconds == pytest.approx(70, abs=5)
    assert mail.oldest_first_attempt_age_seconds == pytest.approx(50, abs=5)
    assert mail.oldest_in_flight_age_seconds == pytest.approx(20, abs=5)
    told = {share.tenant: (share.depth, share.in_flight) for share in mail.tenants or ()}
    assert told == {"acme": (1, 0), "grove": (1, 0), "unknown": (0, 1)}
    assert (plain.depth, plain.in_flight) == (1, 0)
    assert "carries no time" in plain.unavailable["oldest_age_seconds"]
    assert failed.depth == 1 and failed.oldest_age_seconds == pytest.approx(90, abs=5)
    assert failed.dead_letter_for == "mail,plain,wrong"
    assert not was_read(found["wrong", None])
    note(*measured("resque", [mail]))
