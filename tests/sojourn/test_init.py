"""``sojourn init`` finds what runs, writes settings that hold, and no secret; ``doctor`` says what will be known."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collectors.samples import Sample
from collectors.settings import CollectSettings
from sojourn.cli.main import app
from sojourn.first_settings import written
from sojourn.found import Found, is_kafka, is_nats, is_postgres, is_rabbitmq, is_redis, is_sqs, look
from sojourn.knowledge import knowledge
from sojourn.settings import load
from tests.support.nats import NatsServer
from tests.support.postgresql import PostgresServer
from tests.support.redis import RedisServer

SECRET = "hunter2-of-the-url"
PROBES = (is_kafka, is_nats, is_postgres, is_rabbitmq, is_redis, is_sqs)


def brokers(text: str, folder: Path) -> tuple[dict[str, object], ...]:
    """The brokers of a settings file, once it was found valid as a whole."""
    path = folder / "written.toml"
    path.write_text(text, encoding="utf-8")
    chosen = load(path, {}).section("collect", CollectSettings)
    return tuple({"kind": one.kind, **one.model_dump(mode="json", exclude_defaults=True)} for one in chosen.brokers)


def test_what_runs_is_found_with_the_libraries_that_keep_queues_there_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    runner, path = CliRunner(), tmp_path / "sojourn.toml"
    with RedisServer(tmp_path / "redis") as server, server.client() as client:
        client.sadd("queues", "mail")
        client.lpush("queue:mail", json.dumps({"queue": "mail", "enqueued_at": time.time() - 9}))
        client.hset("bull:orders:meta", "opts.maxLenEvents", 10_000)
        address = f"127.0.0.1:{server.port}"
        ran = runner.invoke(app, ["init", "-o", str(path), "--at", address])
        assert ran.exit_code == 0, ran.output
        assert f"found redis at {address}, by the address you named, with queues of sidekiq, bullmq" in ran.output
        text = path.read_text()
        told = [one for one in brokers(text, tmp_path) if one["url"] == f"redis://{address}/0"]
        assert [set(one) & {"sidekiq", "bullmq", "celery"} for one in told] == [{"sidekiq", "bullmq"}]
        again = runner.invoke(app, ["init", "-o", str(path), "--at", address])
        assert again.exit_code != 0 and path.read_text() == text

        only = tmp_path / "only.toml"
        only.write_text(
            f'[[collect.brokers]]\nkind = "redis"\nname = "jobs"\nurl = "redis://{address}"\nsidekiq = {{}}\n'
        )
        said = runner.invoke(app, ["doctor", "-c", str(only), "--lake", str(tmp_path / "lake")]).output
    lines = [line for line in said.splitlines() if "broker jobs" in line]
    assert any("1 queue, 1 of dead letters; known: depth, in flight, delayed, retries, age" in line for line in lines)
    assert any("unknown: messages acknowledged – Sidekiq counts what was processed" in line for line in lines)


def test_each_kind_of_server_is_known_by_its_own_words_and_by_no_others(tmp_path: Path) -> None:
    redis, nats = RedisServer(tmp_path / "redis", password="secret"), NatsServer(tmp_path / "nats")
    with redis, nats, PostgresServer() as postgres:
        addresses = {
            is_redis: ("127.0.0.1", redis.port),
            is_nats: ("127.0.0.1", int(nats.url.rpartition(":")[2])),
            is_postgres: ("127.0.0.1", int(postgres.port)),
        }
        for mine, address in addresses.items():
            assert [probe for probe in PROBES if probe(address)] == [mine]


def test_addresses_in_the_environment_are_found_and_their_passwords_are_not_written(tmp_path: Path) -> None:
    environment = {
        "REDIS_URL": f"rediss://app:{SECRET}@redis.internal:7000/3",
        "DATABASE_URL": f"postgresql://shop:{SECRET}@db.internal/shop?sslmode=require",
        "CLOUDAMQP_URL": f"amqps://me:{SECRET}@rabbit.internal/vhost",
        "KAFKA_BOOTSTRAP_SERVERS": "k1.internal:9093,k2.internal:9093",
        "NATS_URL": "nats://nats.internal",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": SECRET,
        "SOJOURN_X": f"redis://x:{SECRET}@never.internal",
        "HOMEPAGE": "https://example.com",
        "BROKEN_URL": "redis://[oops",
    }
    found = [one for one in look(environment) if one.variable]
    assert {one.kind for one in found} == {"redis", "postgres", "rabbitmq", "kafka", "nats", "sqs"}
    text = written(found)
    assert SECRET not in text and "never.internal" not in text
    told = {str(one["kind"]): one for one in brokers(text, tmp_path) if "kind" in one}
    assert told["redis"]["url"] == "rediss://redis.internal:7000/3"
    assert told["redis"]["user"] == "app"
    assert told["postgres"]["url"] == "postgresql://db.internal:5432/shop"


def test_what_servers_and_variables_say_stays_text(tmp_path: Path) -> None:
    found = [
        Found("redis", "127.0.0.1", 6379, "X", notes=('oops\n[alert]\nname = "x"\x1b[2J',)),
        Found("nats", "::1", 1, "Y"),
    ]
    assert len(brokers(written(found), tmp_path)) == 2
    assert "\x1b" not in written(found)
    assert brokers(written([]), tmp_path) == ()


def test_an_age_is_known_where_a_queue_that_holds_something_has_one() -> None:
    """Of an empty queue every broker knows that nothing is old: of RabbitMQ doctor said that ages are known."""
    empty = Sample("mail", 1, depth=0, in_flight=0, oldest_age_seconds=0.0)
    full = Sample("orders", 1, depth=7, in_flight=0, unavailable={"oldest_age_seconds": "no timestamps"})
    assert "age" in knowledge([empty]).known
    assert knowledge([empty, full]).unknown["age"] == "no timestamps"
    assert "age" in knowledge([empty, replace(full, oldest_age_seconds=9.0)]).known
