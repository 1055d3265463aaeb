"""What goes wrong on brokers in production, each made on the real server: a sampled queue that must not be quiet.

Or one that must: a log is no backlog, and what is due later does not wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.collectors.redis import making
from tests.collectors.support import connect, make_stream
from tests.support.kafka import KafkaServer
from tests.support.nats import NatsServer
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer

Row = dict[str, Any]
_QUICK = {"interval": 0.2, "window": 3}


@dataclass(frozen=True)
class Fault:
    """One trouble: how it is made, how to know that it is seen, and what each face must say of it."""

    name: str
    words: str
    server: Callable[[Path], AbstractContextManager[Any]]
    broker: Callable[[Any], Row]
    make: Callable[[Any], Callable[[], None]]  # returns what keeps the trouble going, called again and again
    queue: str
    seen: Callable[[Row], bool]  # a row of queue_health_now
    columns: tuple[str, ...]
    rules: frozenset[str]
    metrics: tuple[str, ...]  # what lines of the metrics page begin with
    absent: tuple[str, ...] = ()
    page: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def _nothing() -> None:
    """The trouble lasts by itself."""


@contextmanager
def _started(server: Any) -> Iterator[Any]:
    with server:
        yield server


def _overtaken(server: KafkaServer) -> Callable[[], None]:
    server.make_topics("orders")
    server.produce("orders", 500)
    server.commit("billing", "orders", {0: 40})
    server.delete_records("orders", 500)
    return _nothing


_producers: list[Producer] = []  # held: a transaction ends with its producer


def _hung(server: KafkaServer) -> Callable[[], None]:
    server.make_topics("payments")
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "hangs", "log_level": 0})
    _producers.append(producer)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("payments", b"x", partition=0, timestamp=round((time.time() - 1200) * 1000))
    assert producer.flush(60) == 0  # it never ends
    server.commit("ledger", "payments", {0: 0})
    return lambda: server.produce("payments", 5)


def _unconsumed(server: RabbitServer) -> Callable[[], None]:
    with server.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("mails", durable=True)
        for _ in range(500):
            channel.basic_publish("", "mails", b"x")
    return _nothing


def _idle_celery(server: RedisServer) -> Callable[[], None]:
    with making.app.connection_for_write(server.url) as connection:
        for _ in range(50):
            making.slow.apply_async(queue="tasks", headers={"enqueued_at": time.time() - 120}, connection=connection)
    return _nothing


def _scheduled(server: RedisServer) -> Callable[[], None]:
    with making.app.connection_for_write(server.url) as connection:
        sent = {"enqueued_at": time.time() - 120}
        for _ in range(5):
            making.slow.apply_async(queue="later", countdown=3600, headers=sent, connection=connection)
    return _nothing


def _log(server: RedisServer) -> Callable[[], None]:
    with server.client() as client:
        for number in range(1000):
            client.xadd("audit", {"n": number}, id=f"{1_600_000_000_000 + number}-0")
    return _nothing


def _stream(server: NatsServer) -> Callable[[], None]:
    async def work() -> None:
        connection = await connect(server.url)
        await make_stream(connection, "AUDIT", retention="limits")
        for _ in range(100):
            await connection.jetstream().publish("audit.a", b"x")
        await connection.close()

    asyncio.run(work())
    return _nothing


def _kafka(server: KafkaServer) -> Row:
    return {
        "kind": "kafka",
        "bootstrap": server.bootstrap,
        "topics": {"include": ["orders", "payments"]},
        "read_committed": ["ledger"],
        "status": _QUICK,
    }


def _rabbit(server: RabbitServer) -> Row:
    return {"kind": "rabbitmq", "url": server.url, "user": server.user, "password": {"env": "RABBIT_PASSWORD"}}


FAULTS = (
    Fault(
        "retention-overtakes-a-group",
        "Kafka's retention overtakes a group that nobody is a member of any more: committed 40 of 500, all deleted",
        lambda folder: _started(KafkaServer(folder)),
        _kafka,
        _overtaken,
        "orders",
        lambda row: row["status"] == "LOST",
        ("subscriber", "depth", "consumers", "status", "retention_margin"),
        frozenset({"ConsumerNotOk"}),
        ("sojourn_queue_lost_total{", "sojourn_queue_retention_margin{", "sojourn_queue_info{"),
        page=("billing of orders: LOST",),
    ),
    Fault(
        "transaction-hangs",
        "A transaction hangs for twenty minutes on a topic that a group reads with isolation.level=read_committed",
        lambda folder: _started(KafkaServer(folder)),
        _kafka,
        _hung,
        "payments",
        lambda row: row["status"] == "BLOCKED",
        ("subscriber", "depth", "status", "transactional_lag", "transactional_age_seconds"),
        frozenset({"ConsumerNotOk", "TransactionHangs"}),
        ("sojourn_queue_transactional_lag{", "sojourn_queue_transactional_age_seconds{"),
        page=("BLOCKED", "transaction on payments hangs"),
    ),
    Fault(
        "nobody-consumes",
        "500 messages in a RabbitMQ queue that nobody consumes",
        lambda folder: _started(RabbitServer(folder)),
        _rabbit,
        _unconsumed,
        "mails",
        lambda row: row["depth"] == 500,
        ("depth", "in_flight", "consumers", "drain_state"),
        frozenset({"NoConsumers"}),
        ("sojourn_queue_depth{", "sojourn_queue_consumers{"),
        page=("Nobody consumes mails",),
        environment={"RABBIT_PASSWORD": RabbitServer.password},
    ),
    Fault(
        "celery-without-workers",
        "50 Celery tasks on Redis and no worker: nothing leaves",
        lambda folder: _started(RedisServer(folder)),
        lambda server: {"kind": "redis", "url": server.url},
        _idle_celery,
        "tasks",
        lambda row: row["depth"] == 50 and row["drain_state"] == "stalled",
        ("depth", "in_flight", "oldest_age_seconds", "mode", "drain_state"),
        frozenset({"NothingAcknowledged", "QueueBacklogged"}),
        ("sojourn_queue_depth{", "sojourn_queue_oldest_age_seconds{"),
        page=("50 messages of tasks wait, and for ten minutes none was acknowledged",),
    ),
    Fault(
        "celery-eta",
        "Five Celery tasks, sent two minutes ago with a countdown of an hour: they are not due, so nothing waits",
        lambda folder: _started(RedisServer(folder)),
        lambda server: {"kind": "redis", "url": server.url},
        _scheduled,
        "later",
        lambda row: row["delayed"] == 5,
        ("depth", "delayed", "oldest_age_seconds", "mode", "drain_state"),
        frozenset(),
        ("sojourn_queue_delayed{", "sojourn_queue_oldest_age_seconds{"),
        page=("Nothing waits, by the broker's own count",),
    ),
    Fault(
        "redis-log",
        "A Redis stream that no group reads: a log, five years old",
        lambda folder: _started(RedisServer(folder)),
        lambda server: {"kind": "redis", "url": server.url},
        _log,
        "audit",
        lambda row: row["queue"] == "audit",
        ("depth", "oldest_age_seconds", "mode", "drain_state"),
        frozenset(),
        ("sojourn_queue_info{",),
        absent=("sojourn_queue_depth{", "sojourn_queue_oldest_age_seconds{"),
        page=("audit", "the broker tells no depth"),
    ),
    Fault(
        "nats-log",
        "A NATS stream of limits that no consumer reads: a log",
        lambda folder: _started(NatsServer(folder)),
        lambda server: {"kind": "nats", "url": server.url, "streams": ["AUDIT"], "tap": {"enabled": False}},
        _stream,
        "AUDIT",
        lambda row: row["queue"] == "AUDIT",
        ("depth", "oldest_age_seconds", "mode", "drain_state"),
        frozenset(),
        ("sojourn_queue_info{",),
        absent=("sojourn_queue_depth{", "sojourn_queue_oldest_age_seconds{"),
        page=("AUDIT", "the broker tells no depth"),
    ),
)
