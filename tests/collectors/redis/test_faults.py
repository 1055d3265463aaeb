"""Redis away, failing over, refusing, changing under the reader: nothing crashes, nothing invents a zero."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.redis.client import Client
from collectors.redis.layouts import streams
from collectors.redis.settings import RedisBroker
from collectors.samples import was_read
from lake.errors import UserError
from tests.collectors.redis.reading import counts, named, read, source
from tests.support.facts import proves
from tests.support.ports import free_ports
from tests.support.redis import RedisServer, prepare

QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}


async def test_a_server_that_is_away_is_a_lost_connection_and_is_read_again_when_back(own_redis: RedisServer) -> None:
    one = source(own_redis, dyno={"prefix": "app"}, streams={})
    await one.open()
    prepare(own_redis)
    before = named(await one.read())
    own_redis.kill()
    with pytest.raises(ConnectionLost):
        await one.read()
    with pytest.raises(ConnectionLost):
        await one.read()
    with pytest.raises(ConnectionLost, match=str(own_redis.port)):
        await one.open()
    own_redis.start()
    await one.open()
    after = named(await one.read())
    await one.close()
    await one.close()
    assert counts(before["orders", None]) == (3, 2, 1)
    assert counts(after["orders", None]) == (0, 0, 0)  # the server kept nothing: the recipe's empty sets are no keys
    assert ("events", "billing") not in after


async def test_counters_begin_again_after_the_database_is_emptied(redis_server: RedisServer) -> None:
    one = source(redis_server, streams={})
    await one.open()
    with redis_server.client() as client:
        for number in range(9):
            client.xadd("events", {"n": number})
        client.xgroup_create("events", "billing", id="0")
        client.xreadgroup("billing", "one", {"events": ">"})
        first = named(await one.read())["events", "billing"]
        client.flushall()
        await one.read()
        client.xadd("events", {"n": 0})
        client.xgroup_create("events", "billing", id="0")
        second = named(await one.read())["events", "billing"]
    await one.close()
    assert (first.published_total, first.delivered_total) == (9, 9)
    assert (second.published_total, second.delivered_total, second.redelivered_total) == (1, 0, 0)


def test_a_key_of_another_type_spoils_its_own_queue_alone(redis_server: RedisServer) -> None:
    prepare(redis_server)
    with redis_server.client() as client:
        client.set("app.UNACK.{bad.a}.0", "a string")
        client.zadd("app.QUEUE.{bad.a}", {"m": 1})
        client.set("rq:queue:odd", "a string")
        client.sadd("rq:queues", "rq:queue:odd", "rq:queue:good")
        client.set("mail", "a string")
        client.set("plain", "a string")
    found = read(
        redis_server,
        dyno={"prefix": "app"},
        streams={"keys": ["events", "plain"]},
        rq={},
        celery={"queues": ["mail", "celery"]},
    )
    spoiled = {queue for (queue, _), sample in found.items() if not was_read(sample)}
    assert spoiled == {"bad", "odd", "plain", "mail"}
    for queue in spoiled:
        assert all("WRONGTYPE" in reason for reason in found[queue, None].unavailable.values())
    assert counts(found["orders", None]) == (3, 2, 1)
    assert counts(found["good", None]) == (0, 0, 0)
    assert counts(found["celery", None]) == (0, 0, 0)


def test_a_key_that_we_may_not_read_spoils_its_own_queue_alone(own_redis: RedisServer) -> None:
    prepare(own_redis)
    with own_redis.client() as client:
        client.zadd("app.QUEUE.{secret.a}", {"m": 1})
        rules = ["on", "nopass", "%R~app.QUEUE.{orders*", "%R~app.UNACK.*", "%R~events", "+@read", "+time", "+client"]
        client.execute_command("ACL", "SETUSER", "sojourn", *rules)
    found = read(own_redis, user="sojourn", dyno={"prefix": "app"}, streams={}, rq={})
    assert counts(found["orders", None]) == (3, 2, 1)
    assert counts(found["events", "billing"]) == (3, 2, 0)
    for refused in ("secret", "rq"):
        assert not was_read(found[refused, None])
        assert "NOPERM" in found[refused, None].unavailable["depth"]


def test_what_a_search_for_every_layout_may_not_read_is_told_and_not_left_out(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.sadd("rq:queues", "rq:queue:mail")
        client.sadd("_kombu.binding.tasks", "tasks\x06\x16\x06\x16tasks")
        rules = ["on", "nopass", "%R~app.*", "+@read", "+time", "+client"]
        client.execute_command("ACL", "SETUSER", "sojourn", *rules)
    found = read(own_redis, user="sojourn")
    assert {queue for queue, _ in found} == {"resque", "rq", "sidekiq", "tasks"}
    for sample in found.values():
        assert not was_read(sample)
        assert "NOPERM" in sample.unavailable["depth"]
    assert "name the layouts" in found["rq", None].unavailable["depth"]


@proves("redis", "auth", "user and password (ACL)")
def test_the_permissions_that_the_manual_lists_suffice(own_redis: RedisServer) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "brokers" / "redis.md").read_text()
    (rule,) = [line for line in manual.splitlines() if line.startswith("ACL SETUSER sojourn")]
    expected = prepare(own_redis)
    password = own_redis._folder / "password"
    password.write_text("the-password")
    with own_redis.client() as client:
        client.rpush("rq:queue:default", "1")
        client.sadd("rq:queues", "rq:queue:default")
        client.sadd("_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
        client.execute_command(*rule.split())
    found = read(own_redis, user="sojourn", password={"file": str(password)})
    assert all(was_read(sample) for sample in found.values())
    assert {queue for queue, _ in found} == {*expected, "default", "default.failed", "celery"}


@pytest.mark.parametrize("password", [None, "wrong"])
def test_refused_credentials_are_the_users_to_mend_and_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str | None
) -> None:
    server = RedisServer(tmp_path / "redis", password="right")
    server.start()
    settings: dict[str, Any] = {"dyno": {}}
    if password is not None:
        monkeypatch.setenv("REDIS_PASSWORD", password)
        settings["password"] = {"env": "REDIS_PASSWORD"}
    try:
        with pytest.raises(CredentialsRefused) as refused:
            read(server, **settings)
        assert "wrong" not in str(refused.value)
        monkeypatch.setenv("REDIS_PASSWORD", "right")
        assert read(server, dyno={}, password={"env": "REDIS_PASSWORD"}) == {}
    finally:
        server.stop()


@pytest.fixture
def scripted() -> Iterator[Any]:
    """A server that answers each whole request with given bytes; for what a real one says only while it fails over."""
    running: list[asyncio.Server] = []

    async def start(*answers: bytes) -> int:
        remaining = [b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n", *answers]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(65536)
            writer.write(b"+OK\r\n")
            while remaining and await reader.read(65536):
                writer.write(remaining.pop(0))
            writer.close()

        (port,) = free_ports(1)
        running.append(await asyncio.start_server(serve, "127.0.0.1", port))
        return port

    yield start
    for server in running:
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-CLUSTERDOWN The cluster is down\r\n",
        b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-BUSY Redis is busy running a script.\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$100\r\ncut",
        b"",
    ],
)
async def test_a_server_that_cannot_serve_now_is_a_lost_connection(scripted: Any, answer: bytes) -> None:
    port = await scripted(answer)
    client = Client(RedisBroker(url=f"redis://127.0.0.1:{port}", timeout=1.0))
    await client.open()
    with pytest.raises(ConnectionLost):
        await client.ask([("ZCARD", "a")])
    await client.close()


async def test_a_server_that_hangs_is_given_up_and_its_late_answer_is_nobodys(own_redis: RedisServer) -> None:
    client = Client(RedisBroker(url=own_redis.url, timeout=0.3))
    await client.open()
    with own_redis.client() as other:
        other.execute_command("CLIENT", "PAUSE", "700", "ALL")
        with pytest.raises(ConnectionLost, match="no answer in time"):
            await client.ask([("ECHO", "late")])
        with pytest.raises(ConnectionLost):
            await client.ask([("ECHO", "again")])
    await asyncio.sleep(0.6)
    await client.open()
    assert await client.ask([("ECHO", "new")]) == [b"new"]
    await client.close()


async def test_a_server_that_loads_its_data_is_a_lost_connection_until_it_has(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(5000):
            pipe.zadd(f"app.QUEUE.{{{number}.a}}", {"m": 1})
        pipe.execute()
        client.save()
    own_redis.kill()
    own_redis._arguments = ("--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024")
    own_redis.start(ready=False)
    one, told = source(own_redis, dyno={"prefix": "app"}), set()
    for _ in range(200):
        try:
            await one.open()
            found = await one.read()
            break
        except ConnectionLost as lost:
            told.add(str(lost))
            await asyncio.sleep(0.05)
    await one.close()
    assert len(found) == 5000
    assert any("LOADING" in reason for reason in told)


def test_a_database_far_larger_than_a_cycles_budget_is_searched_in_steps(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(30_000):
            pipe.set(f"filler-{number}", "")
        pipe.execute()
        client.zadd("app.QUEUE.{orders.a}", {"m": 1})

    async def work() -> tuple[int, int]:
        one = source(redis_server, dyno={"prefix": "app"}, scan_budget=1000, discover_every=60)
        await one.open()
        found = len(await one.read())
        with redis_server.client() as client:
            client.zadd("app.QUEUE.{later.a}", {"m": 1})
        scanner = one._scanners["dyno"]
        scanner._due = 0.0
        cycles = 0
        while len(await one.read()) < 2 and cycles < 100:
            cycles += 1
        await one.close()
        return found, cycles

    found, cycles = asyncio.run(work())
    assert found == 1
    assert 0 <= cycles < 40


@proves("redis", "auth", "TLS")
async def test_tls_with_our_own_authority_and_a_password_is_spoken(tmp_path: Path) -> None:
    _certificates(tmp_path)
    files = ["--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "ca.crt"]
    arguments = [value if value.startswith("--") else str(tmp_path / value) for value in files]
    server = RedisServer(tmp_path / "redis", *arguments, "--tls-auth-clients", "no", password="right", tls=tmp_path)
    (tmp_path / "password").write_text("right\n")
    server.start()
    try:
        with server.client() as client:
            client.zadd("app.QUEUE.{orders.a}", {"m": 1})
        settings = {"password": {"file": str(tmp_path / "password")}, "dyno": {"prefix": "app"}}
        one = source(server, tls={"enabled": True, "ca": str(tmp_path / "ca.crt")}, **settings)
        await one.open()
        assert counts(named(await one.read())["orders", None]) == (1, 0, 0)
        await one.close()
        secure = f"rediss://127.0.0.1:{server.port}/0"
        one = source(server, url=secure, tls={"ca": str(tmp_path / "ca.crt")}, **settings)
        await one.open()
        assert set(named(await one.read())) == {("orders", None)}
        await one.close()
        with pytest.raises(ConnectionLost):  # nobody that we trust has signed it
            await source(server, tls={"enabled": True}, **settings).open()
    finally:
        server.stop()


def _certificates(folder: Path) -> None:
    key = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    ca = ["-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.crt")]
    subprocess.run(["openssl", "req", "-x509", *key, *ca, "-subj", "/CN=test authority"], **QUIET)
    own = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    signed = ["-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key")]
    subprocess.run(["openssl", "req", "-x509", *key, *own, *name, *signed], **QUIET)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "rediss://127.0.0.1:1/0", "tls": {"enabled": False}},
        {"url": "sentinel://127.0.0.1:1/0"},
        {"url": "redis://127.0.0.1:1/0?ssl_cert_reqs=none"},
        {"sentinel": {"service": "primary"}},
        {"sentinel": {"service": "primary", "addresses": [":1"]}},
        {"url": "redis://user:secret@127.0.0.1:1/0"},
        {"url": "redis://127.0.0.1:1/name"},
        {"dyno": {"shards": ["a"]}},
        {"dyno": {"queues": ["order*"], "shards": ["a"], "prefix": "app"}},
        {"celery": {"queue": ["celery"]}},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RedisBroker.model_validate(settings)


def test_a_database_that_is_not_there_is_the_users_to_mend(redis_server: RedisServer) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}/9999"
    with pytest.raises(UserError, match="database"):
        asyncio.run(Client(RedisBroker(url=url)).open())


def test_a_password_that_is_not_there_is_named_and_nothing_is_connected() -> None:
    broker = RedisBroker.model_validate({"password": {"env": "NOT_SET_ANYWHERE"}})
    with pytest.raises(UserError, match="NOT_SET_ANYWHERE"):
        asyncio.run(Client(broker).open())


def test_messages_that_no_celery_wrote_spoil_neither_other_queues_nor_the_cycle(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.rpush("bad", "[" * 100_000)
        client.rpush("good", '{"headers": {"enqueued_at": 1600000000}}')
        for number, entry in enumerate(("[" * 100_000, '[{}, [1], "good"]', '[{}, "x", {"a": 1}]')):
            client.hset("unacked", str(number), entry)
        found = read(redis_server, celery={"queues": ["bad", "good"]})
    assert found["bad", None].depth == 1
    good = found["good", None]
    assert good.depth == 1
    assert (good.oldest_age_seconds or 0) > 1e8
    assert good.in_flight is None
    assert good.unavailable["in_flight"] == "an unacknowledged message cannot be read"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1789990000000"])
def test_a_time_that_is_not_in_seconds_makes_no_age_of_zero(redis_server: RedisServer, value: str) -> None:
    with redis_server.client() as client:
        client.rpush("odd", f'{{"headers": {{"enqueued_at": {value}}}}}')
        sample = read(redis_server, celery={"queues": ["odd"]})["odd", None]
    assert (sample.depth, sample.oldest_age_seconds) == (1, None)


def test_a_queue_whose_answer_has_another_shape_is_unread_alone(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(redis_server)
    told = streams._mapping

    def odd(flat: list[Any]) -> dict[str, Any]:
        found = told(flat)
        found.pop("last-delivered-id", None)
        return found

    monkeypatch.setattr(streams, "_mapping", odd)
    found = read(redis_server, dyno={"prefix": "app"}, streams={})
    assert counts(found["orders", None]) == (3, 2, 1)
    assert found["events", None].unavailable["depth"] == "the server's answer cannot be read: KeyError"


def test_unacknowledged_messages_too_large_to_be_read_each_cycle_are_unknown_and_hold_nothing_up(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        client.rpush("q", '{"headers": {}}')
        entry = json.dumps([{"body": "a" * 1_000_000}, "", "q"])
        for number in range(20):
            client.hset("unacked", str(number), entry)
        sample = read(redis_server, celery={"queues": ["q"]})["q", None]
    assert (sample.depth, sample.in_flight) == (1, None)
    assert "MiB: too much to look into" in sample.unavailable["in_flight"]
