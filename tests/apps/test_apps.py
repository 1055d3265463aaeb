"""Unmodified applications, observed from outside: the lake knows their ages as the applications themselves do.

Each sends all its messages before the first is worked on, so that the ages are long and all different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collectors.settings import CollectSettings
from lake.store import Lake
from tests.apps.run_apps import finish, lives, start
from tests.collectors.support import collecting
from tests.support.deep import examples
from tests.support.elasticmq import ElasticMq
from tests.support.kafka import KafkaServer
from tests.support.nats import NatsServer
from tests.support.ports import free_ports
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

NUMBER = 60
WORK_SECONDS = 0.01  # what each application takes for one message
#: Between a moment that the application notes and the one that its client or broker tells.
TOLERANCE_SECONDS = 0.4


@dataclass(frozen=True)
class World:
    """A broker with an application: where it connects, and what collectors watch."""

    module: str
    address: str
    broker: dict[str, Any] | None  # of [[collect.brokers]]; none: spans alone tell
    spans: bool
    subscriber: str | None = None
    environment: dict[str, str] | None = None
    consumed_before: int = 0  # messages that must have been consumed before the broker knows a depth


@contextmanager
def nats(folder: Path) -> Iterator[World]:
    """NATS: the tap tells, no instrumentation is there."""
    with NatsServer(folder) as server:
        yield World("nats_app", server.url, {"kind": "nats", "url": server.url, "streams": ["ORDERS"]}, spans=False)


@contextmanager
def kafka(folder: Path) -> Iterator[World]:
    """Kafka: spans of confluent-kafka's instrumentation tell, the sampler beside them."""
    with KafkaServer(folder) as server:
        server.make_topics("orders")
        broker = {"kind": "kafka", "bootstrap": server.bootstrap}
        # Nobody waits for what no group reads, and where one begins is known from its first commit on.
        yield World("kafka_app", server.bootstrap, broker, True, consumed_before=NUMBER // 3)


@contextmanager
def rabbitmq(folder: Path) -> Iterator[World]:
    """RabbitMQ: spans of pika's instrumentation tell, the sampler beside them."""
    with RabbitServer(folder) as server:
        broker = {"kind": "rabbitmq", "url": server.url, "user": server.user, "password": {"env": "RABBIT_PASSWORD"}}
        yield World("rabbitmq_app", server.amqp_url, broker, True, environment={"RABBIT_PASSWORD": server.password})


@contextmanager
def sqs(folder: Path) -> Iterator[World]:
    """SQS: spans of boto3's instrumentation tell, the sampler beside them."""
    with ElasticMq(folder) as server:
        often = {"sample_interval": 0.2, "list_interval": 1}
        broker = {"kind": "sqs", "endpoint": server.url, "region": "us-east-1", **often}
        yield World("sqs_app", server.url, broker, True, environment=AWS)


@contextmanager
def celery(folder: Path) -> Iterator[World]:
    """Celery on Redis: spans of Celery's instrumentation tell, the sampler beside them."""
    with RedisServer(folder) as server:
        broker = {"kind": "redis", "url": server.url}
        yield World("celery_app", server.url, broker, spans=True)


AWS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
WORLDS: dict[str, Callable[[Path], Any]] = {
    "nats": nats,
    "kafka": kafka,
    "rabbitmq": rabbitmq,
    "sqs": sqs,
    "celery": celery,
}


@pytest.mark.parametrize("kind", [*WORLDS][: examples(2, len(WORLDS))])
def test_the_lake_knows_the_ages_that_the_application_logged(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WORLDS[kind](tmp_path / "server") as world:
        for name, value in (world.environment or {}).items():
            monkeypatch.setenv(name, value)  # for the collectors; the applications inherit it
        (port,) = free_ports(1)
        settings: dict[str, Any] = {"sample_interval": 0.2, "flush_interval": 0.1}
        if world.broker is not None:
            settings["brokers"] = [{"name": f"{kind}-eu", **world.broker}]
        if world.spans:
            settings["receive"] = {"enabled": True, "grpc_port": 0, "http_port": port}
        chosen = CollectSettings.model_validate(settings)
        journal, root = tmp_path / "journal", tmp_path / "lake"
        otlp = f"http://127.0.0.1:{port}" if world.spans else None
        with collecting(chosen, root):
            finish(start(world.module, "produce", world.address, journal, NUMBER, otlp=otlp))
            wait_until(lambda: _count(_events(root))["enqueued"] == NUMBER, "every message in the lake")
            before = world.consumed_before
            if before:
                finish(start(world.module, "consume", world.address, journal, before, otlp=otlp))
                wait_until(lambda: _count(_events(root))["completed"] == before, "what was consumed first in the lake")
            wait_until(lambda: 0.95 <= _coverage(root) <= 1.05, "events and samples under one name")
            finish(start(world.module, "consume", world.address, journal, NUMBER - before, otlp=otlp))
            wait_until(
                lambda: _count(_events(root))["completed"] == NUMBER == len(_first_ages(root)), "every life in the lake"
            )
            events = _events(root)
            wait_until(lambda: _held(root) == 0, "the broker's own count at its end")
    logged = lives(journal)
    assert len(logged) == NUMBER
    assert sorted(_count(events).items()) == [("completed", NUMBER), ("enqueued", NUMBER), ("received", NUMBER)]
    _compare(_first_ages(root), [life.begun - life.sent for life in logged.values()])
    # Unknown is allowed where a consumer was at work before its acknowledgements were told; wrong is not.
    worked = [event["processing_seconds"] for event in events if event["event_type"] == "completed"]
    known = [seconds for seconds in worked if seconds is not None]
    assert len(known) >= NUMBER // 2
    assert max(abs(seconds - WORK_SECONDS) for seconds in known) < TOLERANCE_SECONDS
    assert max(life.begun - life.sent for life in logged.values()) > 2 * TOLERANCE_SECONDS, "ages worth comparing"


def _events(root: Path) -> list[dict[str, Any]]:
    lake = Lake(root)
    return list(lake.read("message_events").to_pylist()) if lake.exists("message_events") else []


def _count(events: list[dict[str, Any]]) -> Counter[str]:
    return Counter(event["event_type"] for event in events)


def _newest(root: Path) -> list[dict[str, Any]]:
    """The newest sample of each queue and subscriber, without those of nothing but polls."""
    lake = Lake(root)
    rows = lake.read("queue_samples").to_pylist() if lake.exists("queue_samples") else []
    newest: dict[tuple[str, str, str | None], dict[str, Any]] = {}
    for row in sorted((row for row in rows if row["depth"] is not None), key=lambda row: row["sampled_at"]):
        newest[row["broker"], row["queue"], row["subscriber"]] = row
    return list(newest.values())


def _held(root: Path) -> int | None:
    """What the broker says that the queue of the events holds, depth and in flight; None before it does."""
    names = {(event["broker"], event["queue"]) for event in _events(root)}
    assert len(names) <= 1, "one queue has one name"
    rows = [row for row in _newest(root) if (row["broker"], row["queue"]) in names]
    return sum(row["depth"] + (row["in_flight"] or 0) for row in rows) if rows else None


def _coverage(root: Path) -> float:
    """The backlog by events, by what the broker says that the same queue holds."""
    held, count = _held(root), _count(_events(root))
    return (count["enqueued"] - count["completed"]) / held if held else 0.0


def _first_ages(root: Path) -> list[float]:
    """AgeOfFirstAttempt of each message, by its definition."""
    return [
        (event["occurred_at"] - event["enqueued_at"]).total_seconds()
        for event in _events(root)
        if event["event_type"] == "received" and event["attempt"] in (1, None) and event["enqueued_at"] is not None
    ]


def _compare(told: list[float], logged: list[float]) -> None:
    """Message for message, in the order of their sizes."""
    pairs = list(zip(sorted(told), sorted(logged), strict=True))
    assert [pair for pair in pairs if abs(pair[0] - pair[1]) > TOLERANCE_SECONDS] == []
