"""What Sidekiq itself put into a real server is told as it is; newer versions by keys as they write them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from collectors.samples import TenantShare, was_read
from tests.collectors.redis.reading import counts, read
from tests.support.facts import proves
from tests.support.redis import RedisServer
from tests.support.sidekiq import push, redrive, sidekiq
from tests.support.waiting import wait_until

BY_TENANT = {"tenant": "json:args[0].tenant"}


def work(tenant: str, queue: str = "default", seconds: int = 600, **more: Any) -> dict[str, Any]:
    """A job that is at work, or waits, for as long as any test."""
    return {"class": "Work", "args": [{"tenant": tenant}, seconds], "queue": queue, **more}


@dataclass(frozen=True)
class Scene:
    """A server on which Sidekiq is in the middle of its work, and when each job that is there was pushed."""

    server: RedisServer
    working: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    mail: list[dict[str, Any]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """``default``: 2 at work, 3 wait, 1 scheduled, 1 to be retried; 1 dead. ``mail``: 2 wait, nobody works on it."""
    with RedisServer(tmp_path_factory.mktemp("sidekiq")) as server, server.client() as client:
        push(server, {"class": "Broken", "args": [{}]}, {"class": "Broken", "args": [{}], "retry": 0})
        with sidekiq(server, "default", "low"):
            wait_until(lambda: client.zcard("retry") == client.zcard("dead") == 1, "one retry and one dead job")
            working = push(server, work("grove"), work("grove"))
            wait_until(lambda: client.llen("queue:default") == 0, "both jobs to be taken")
            waiting = push(server, work("acme"), work("acme"), work("grove"))
            push(server, work("acme", at=time.time() + 900))
            mail = push(server, work("acme", "mail"), work("acme", "mail"))
            wait_until(lambda: _reported(client) == 2, "the process to report its two jobs")
            yield Scene(server, working, waiting, mail)


def _reported(client: Any) -> int:
    (process,) = client.smembers("processes") or (b"",)
    return int(client.hlen(process + b":workers"))


@proves("sidekiq", "dead letters", "the dead set")
def test_each_queue_is_told_as_sidekiq_keeps_it(scene: Scene) -> None:
    found = read(scene.server, sidekiq={})
    default, mail, dead = (found[name, None] for name in ("default", "mail", "sidekiq.dead"))
    assert set(found) == {("default", None), ("mail", None), ("sidekiq.dead", None)}
    assert counts(default) == (3, 2, 2)
    assert (default.retrying, default.consumers, default.in_flight_limit, default.state) == (1, 1, 2, "running")
    assert counts(mail) == (2, 0, 0)
    assert (mail.consumers, mail.in_flight_limit, mail.state) == (0, 0, "no process")
    assert (counts(dead), dead.dead_letter_for, dead.consumers) == ((1, 0, 0), "default", 0)
    assert default.staleness_seconds is not None and default.staleness_seconds < 60


@proves("sidekiq", "age", "within 0.1 s of what the producer noted")
def test_ages_are_those_that_the_producer_noted(scene: Scene) -> None:
    found = read(scene.server, sidekiq={})
    default, mail = found["default", None], found["mail", None]
    at = default.sampled_at / 1e6
    assert default.oldest_age_seconds == pytest.approx(at - scene.working[0]["after"], abs=0.1)
    assert default.oldest_first_attempt_age_seconds == pytest.approx(at - scene.waiting[0]["after"], abs=0.1)
    assert mail.oldest_age_seconds == pytest.approx(at - scene.mail[0]["after"], abs=0.1)
    began = default.oldest_in_flight_age_seconds
    assert began is not None and began <= at - scene.working[0]["before"] + 1.1  # Sidekiq notes whole seconds


@proves("sidekiq", "per tenant", "by a JSON path of the job, or the queue's name")
def test_each_tenants_share_is_told_where_a_path_names_it(scene: Scene) -> None:
    found = read(scene.server, sidekiq=BY_TENANT)
    told = {share.tenant: share for share in found["default", None].tenants or ()}
    assert set(told) == {"acme", "grove", "unknown"}
    at = found["default", None].sampled_at / 1e6
    assert [(one.depth, one.in_flight, one.delayed) for one in (told["acme"], told["grove"], told["unknown"])] == [
        (2, 0, 1),
        (1, 2, 0),
        (0, 0, 1),
    ]
    assert told["grove"].oldest_age_seconds == pytest.approx(at - scene.working[0]["after"], abs=0.1)
    assert told["acme"].oldest_age_seconds == pytest.approx(at - scene.waiting[0]["after"], abs=0.1)
    by_name = read(scene.server, sidekiq={"tenant": "queue:{tenant}"})["mail", None].tenants
    assert by_name is not None and [(one.tenant, one.depth) for one in by_name] == [("mail", 2)]


def test_where_more_is_held_than_is_looked_into_nothing_is_guessed(scene: Scene) -> None:
    with scene.server.client() as client:
        later = json.dumps({"class": "Work", "args": [{}, 1], "queue": "default"})
        client.zadd("schedule", {f'{later[:-1]}, "jid": "{number}"}}': time.time() + 900 for number in range(20)})
        client.zadd("schedule", {later: time.time() - 7})
        try:
            found = read(scene.server, sidekiq={**BY_TENANT, "read_at_most": 2})
        finally:
            client.zremrangebyrank("schedule", 0, 0)
            client.zremrangebyrank("schedule", -20, -1)
    default, schedule = found["default", None], found["sidekiq.schedule", None]
    assert counts(default) == (3, 2, None)
    assert default.retrying == 1
    assert "22 of them: too many" in default.unavailable["delayed"]
    assert default.tenants is None and "tenants" in default.unavailable
    assert counts(schedule) == (1, 0, 21)
    assert schedule.oldest_age_seconds == pytest.approx(7, abs=5)
    assert schedule.consumers == 1


@proves("sidekiq", "dead letters", "sent back by Sidekiq's own API")
def test_dead_jobs_go_back_to_their_queue_as_the_example_sends_them(tmp_path: Any) -> None:
    with RedisServer(tmp_path / "redis") as server, server.client() as client:
        push(server, work("acme", "orders"))
        job = json.loads(client.rpop("queue:orders"))
        client.zadd("dead", {json.dumps({**job, "retry_count": 0, "failed_at": time.time()}): time.time() - 40})
        before = read(server, sidekiq={})
        assert counts(before["orders", None]) == (0, 0, 0)
        assert before["sidekiq.dead", None].oldest_age_seconds == pytest.approx(40, abs=10)
        assert [one["queue"] for one in redrive(server)] == ["orders"]
        after = read(server, sidekiq={})
    assert counts(after["orders", None]) == (1, 0, 0)
    assert counts(after["sidekiq.dead", None]) == (0, 0, 0)


def newer(client: Any, version: int, **job: Any) -> dict[str, Any]:
    """Keys as Sidekiq 7.0 and 8.1 write them (lib/sidekiq/launcher.rb, client.rb): one job waits, one is at work."""
    now = time.time()
    one = {"class": "Work", "args": [{"tenant": "acme"}, 1], "queue": "default", "jid": "a", "retry": True, **job}
    one["created_at"] = one["enqueued_at"] = now - 30 if version == 7 else int((now - 30) * 1000)
    other = one | {"jid": "b", "enqueued_at": now - 50 if version == 7 else int((now - 50) * 1000)}
    client.sadd("queues", "default")
    client.lpush("queue:default", json.dumps(one))
    info: dict[str, Any] = {"hostname": "h", "pid": 1, "tag": "", "labels": [], "identity": "h:1:abc"}
    if version == 7:
        info |= {"concurrency": 5, "queues": ["default"], "weights": [{"default": 0}]}
    else:
        info["capsules"] = {"default": {"concurrency": 5, "mode": "strict", "weights": {"default": 0}}}
    told = {"info": json.dumps(info), "busy": 1, "beat": now - 2, "rtt_us": 99, "quiet": "false", "rss": 1}
    client.sadd("processes", "h:1:abc", "h:2:gone")
    client.hset("h:1:abc", mapping=told if version == 7 else {**told, "concurrency": 5})
    entry = {"queue": "default", "payload": json.dumps(other), "run_at": int(now) - 20}
    client.hset("h:1:abc:work", "tid", json.dumps(entry))
    return one


@pytest.mark.parametrize("version", [7, 8])
@proves("sidekiq", "cluster shapes", "Sidekiq 6.4 itself; 7 and 8 by keys as they write them")
def test_newer_versions_are_read_by_keys_as_they_write_them(redis_server: RedisServer, version: int) -> None:
    with redis_server.client() as client:
        newer(client, version)
        client.sadd("paused", "default")
    told = read(redis_server, sidekiq=BY_TENANT)["default", None]
    assert counts(told) == (1, 1, 0)
    assert (told.consumers, told.in_flight_limit, told.state, told.status) == (1, 5, "paused", "PAUSED")
    assert told.oldest_age_seconds == pytest.approx(50, abs=5)
    assert told.oldest_first_attempt_age_seconds == pytest.approx(30, abs=5)
    assert told.oldest_in_flight_age_seconds == pytest.approx(20, abs=5)
    assert told.tenants == (TenantShare("acme", 1, 1, 0, pytest.approx(50, abs=5)),)  # type: ignore[arg-type]


def test_a_namespace_is_read_apart(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.sadd("shop:queues", "default")
        client.lpush("shop:queue:default", json.dumps({"enqueued_at": time.time() - 3, "queue": "default"}))
        client.sadd("queues", "other")
    found = read(redis_server, sidekiq={"namespace": "shop"})
    assert set(found) == {("default", None), ("sidekiq.dead", None)}
    assert counts(found["default", None]) == (1, 0, 0)


def test_a_retry_at_the_head_tells_nothing_of_first_attempts_unless_more_is_looked_into(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        client.sadd("queues", "default")
        for seconds, more in ((90, {"retry_count": 0}), (30, {})):
            client.lpush("queue:default", json.dumps({"enqueued_at": time.time() - seconds, "args": [{}], **more}))
    alone = read(redis_server, sidekiq={})["default", None]
    assert alone.oldest_age_seconds == pytest.approx(90, abs=5)
    assert "a retry" in alone.unavailable["oldest_first_attempt_age_seconds"]
    looked = read(redis_server, sidekiq=BY_TENANT)["default", None]
    assert looked.oldest_first_attempt_age_seconds == pytest.approx(30, abs=5)


def test_garbage_is_its_own_queues_trouble(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.sadd("queues", "good", "wrong", "garbage", "huge", "ahead", b"\xff")
        client.set("queue:wrong", "a string")
        client.lpush("queue:garbage", b"\x83\xa3msg\xffpack", "[" * 5000, json.dumps({"enqueued_at": "never"}))
        client.lpush("queue:huge", json.dumps({"enqueued_at": time.time(), "args": ["x" * (3 << 20)]}))
        client.lpush("queue:ahead", json.dumps({"enqueued_at": time.time() + 3600}))
        client.lpush("queue:good", json.dumps({"enqueued_at": time.time() - 5}))
        client.sadd("processes", "h:1:a", "h:2:b")
        client.hset("h:1:a", mapping={"info": "no json", "beat": "never", "quiet": "false"})
        client.set("h:2:b", "a string")
        client.zadd("retry", {"garbage": 1})
        client.set("dead", "a string")
    found = read(redis_server, sidekiq={})
    assert {queue for (queue, _), sample in found.items() if not was_read(sample)} == {"wrong", "sidekiq.dead"}
    assert counts(found["garbage", None]) == (3, None, None)
    assert "does not tell when" in found["garbage", None].unavailable["oldest_age_seconds"]
    assert found["huge", None].depth == 1
    assert "too much to look into" in found["huge", None].unavailable["oldest_age_seconds"]
    assert found["ahead", None].oldest_age_seconds == 0.0
    assert found["good", None].oldest_age_seconds == pytest.approx(5, abs=5)
    assert "WRONGTYPE" in found["good", None].unavailable["consumers"]
    assert "whose it is" in found["good", None].unavailable["delayed"]
    assert counts(found["sidekiq.retry", None]) == (1, 0, 0)


@proves("sidekiq", "auth", "what a user may not ask is said")
def test_what_may_not_be_read_is_said_with_what_is_missing(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        newer(client, 7)
        rules = ["on", "nopass", "%R~*", "+@read", "+time", "+client", "-hvals", "-memory"]
        client.execute_command("ACL", "SETUSER", "sojourn", *rules)
        client.execute_command("ACL", "SETUSER", "blind", "on", "nopass", "%R~queue:*", "+@read", "+time", "+client")
    told = read(own_redis, user="sojourn", sidekiq={})["default", None]
    assert (told.depth, told.in_flight, told.consumers) == (1, None, 1)
    assert "hvals" in told.unavailable["in_flight"]
    blind = read(own_redis, user="blind", sidekiq={})["sidekiq", None]
    assert not was_read(blind) and "NOPERM" in blind.unavailable["depth"]
    listed = read(own_redis, user="blind", sidekiq={"queues": ["default"]})["default", None]
    assert listed.depth == 1 and "NOPERM" in listed.unavailable["consumers"]
