"""Every kind of broker as the contract suite meets it: a real server, queues with known contents, and our settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pika

from tests.collectors.postgres.reading import PASSWORD as POSTGRES_PASSWORD
from tests.collectors.postgres.reading import Database
from tests.collectors.support import connect, make_queue, publish
from tests.support import bullmq, dramatiq, elasticmq, exposition, kafka, nats, postgresql, rabbitmq, redis, sidekiq
from tests.support.waiting import wait_until

#: Environment that the settings of these brokers refer to.
PASSWORD = "SUITE_PASSWORD"
ENVIRONMENT = {
    PASSWORD: rabbitmq.RabbitServer.password,
    POSTGRES_PASSWORD: postgresql.PASSWORD,
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret-either",
}

#: (queue, subscriber) → values that every reading must tell.
Told = Mapping[tuple[str, str | None], Mapping[str, int]]


class Server(Protocol):
    """A server that the suite may kill."""

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Place:
    """One kind's server, and what it holds."""

    server: Server
    broker: dict[str, Any]
    told: Told
    outlasts: bool = True  # whether the contents survive a crash of the server
    #: Row of the table of brokers → which queues are its own; the place's own name and all of them unless set.
    rows: Mapping[str, set[tuple[str, str | None]]] = field(default_factory=dict)


def nats_place(folder: Path) -> Place:
    """A work queue of which two messages are in flight."""
    server = nats.NatsServer(folder)
    server.start()
    make_queue(server.url)

    async def fill() -> None:
        connection = await connect(server.url)
        await publish(connection.jetstream(), 5)
        pull = await connection.jetstream().pull_subscribe_bind("work", "ORDERS")
        await pull.fetch(2)
        await connection.close()

    asyncio.run(fill())
    return Place(server, {"kind": "nats", "url": server.url}, {("ORDERS", None): {"depth": 3, "in_flight": 2}})


def redis_place(folder: Path) -> Place:
    """A scored set and a stream."""
    server = redis.RedisServer(folder)
    server.start()
    told = redis.prepare(server)
    subscribers = {"events": "billing"}
    return Place(
        server,
        {"kind": "redis", "url": server.url},
        {(queue, subscribers.get(queue)): values for queue, values in told.items()},
        outlasts=False,
        rows={"dyno": {("app.orders", None)}, "streams": {("events", "billing")}},
    )


def sidekiq_place(folder: Path) -> Place:
    """Queues of Sidekiq: one of which a job is at work, one on which nobody works, and dead jobs."""
    server = redis.RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    jobs = [
        {"class": "Work", "args": [{"tenant": tenant}, 600], "queue": "default"} for tenant in ("acme", "grove", "acme")
    ]
    sidekiq.push(server, {"class": "Broken", "args": [{}], "retry": 0}, *jobs, jobs[0] | {"queue": "mail"})
    with sidekiq.sidekiq(server, "default", concurrency=1), server.client() as client:
        wait_until(lambda: sum(client.hlen(one + b":workers") for one in client.smembers("processes")), "a job at work")
    told: dict[tuple[str, str | None], dict[str, int]] = {("default", None): {"depth": 2}, ("mail", None): {"depth": 1}}
    told["sidekiq.dead", None] = {"depth": 1}
    broker = {"kind": "redis", "url": server.url, "sidekiq": {"tenant": "json:args[0].tenant"}}
    return Place(server, broker, told)


def bullmq_place(folder: Path) -> Place:
    """Queues of BullMQ: one of which a job is at work, one on which nobody works, and a failed job."""
    server = redis.RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    work = {"name": "work", "data": {"tenant": "acme", "seconds": 600}}
    with bullmq.worker(server, "orders", concurrency=1), server.client() as client:
        bullmq.produce(server, {"queue": "orders", "name": "broken"}, {"queue": "orders", **work})
        wait_until(
            lambda: client.zcard("bull:orders:failed") == client.llen("bull:orders:active") == 1, "a job at work"
        )
        bullmq.produce(server, {"queue": "orders", **work}, {"queue": "mail", **work})
    told = {("orders", None): {"depth": 1, "in_flight": 1}, ("mail", None): {"depth": 1, "in_flight": 0}}
    told["orders.failed", None] = {"depth": 1, "in_flight": 0}
    return Place(server, {"kind": "redis", "url": server.url, "bullmq": {"tenant": "json:tenant"}}, told)


def dramatiq_place(folder: Path) -> Place:
    """Queues of Dramatiq: one of which a worker holds a message, one on which nobody works, and a dead letter."""
    server = redis.RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    work = {"actor": "work", "args": ["acme", 600]}
    with dramatiq.worker(server.url, "default"), server.client() as client:
        dramatiq.send(server.url, {"actor": "doomed"}, work)
        wait_until(lambda: client.zcard("dramatiq:default.XQ") and not client.llen("dramatiq:default"), "both")
    dramatiq.send(server.url, work, work | {"queue": "mail"})
    told = {("default", None): {"depth": 1, "in_flight": 1}, ("mail", None): {"depth": 1, "in_flight": 0}}
    told["default.XQ", None] = {"depth": 1, "in_flight": 0}
    return Place(server, {"kind": "redis", "url": server.url, "dramatiq": {"tenant": "json:args[0]"}}, told)


def prometheus_place(folder: Path) -> Place:
    """A page that Artemis wrote: one queue of which messages are held, and a dead-letter queue."""
    server = exposition.Exposition(folder, exposition.RECORDED / "artemis.txt")
    server.start()
    broker = {"kind": "prometheus", "url": server.url, "recipe": "artemis", "dead_letters": {"DLQ": "orders"}}
    told = {("orders", None): {"depth": 3, "in_flight": 2}, ("DLQ", None): {"depth": 1, "in_flight": 0}}
    return Place(server, broker, told, rows={"artemis": set(told)})


def kafka_place(folder: Path) -> Place:
    """Topics with groups that lag, and one that nobody reads."""
    server = kafka.KafkaServer(folder)
    server.start()
    kafka.prepare(server)
    told = {("orders", "billing"): {"depth": 4}, ("events", "audit"): {"depth": 3}}
    return Place(server, {"kind": "kafka", "bootstrap": server.bootstrap}, told)


def rabbitmq_place(folder: Path) -> Place:
    """A durable queue with persistent messages, and an empty one."""
    server = rabbitmq.RabbitServer(folder)
    server.start()
    with server.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue, number in (("orders", 3), ("events", 0)):
            channel.queue_declare(queue, durable=True)
            for _ in range(number):
                channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    server.ctl("eval", "mnesia:sync_log().")  # else a crash may forget the queue that was declared last
    broker = {"kind": "rabbitmq", "url": server.url, "user": server.user, "password": {"env": PASSWORD}}
    told = {("orders", None): {"depth": 3, "in_flight": 0}, ("events", None): {"depth": 0, "in_flight": 0}}
    return Place(server, broker, told)


def sqs_place(folder: Path) -> Place:
    """A queue of which one message is in flight, and an empty one."""
    server = elasticmq.ElasticMq(folder)
    server.start()
    for queue in ("orders", "events"):
        server.make(queue)
    server.send("orders", 3)
    server.receive("orders", 1)
    told = {("orders", None): {"depth": 2, "in_flight": 1}, ("events", None): {"depth": 0, "in_flight": 0}}
    return Place(server, {"kind": "sqs", "endpoint": server.url}, told, outlasts=False)


def postgres_place(folder: Path) -> Place:
    """A database in which Oban keeps its jobs: two that wait, one that runs, a producer."""
    server = postgresql.PostgresServer()
    server.start()
    database = Database.make(server)
    database.schema("oban")
    for state, attempt in (("available", 0), ("available", 0), ("executing", 1)):
        values = f"'orders', 'W', '{state}', {attempt}, CASE WHEN {attempt} > 0 THEN now() AT TIME ZONE 'UTC' END"
        database.run(f"INSERT INTO oban_jobs (queue, worker, state, attempt, attempted_at) VALUES ({values})")
    database.run("INSERT INTO oban_producers (node, queue, updated_at) VALUES ('one', 'orders', 'infinity')")
    told = {("orders", None): {"depth": 2, "in_flight": 1}, ("orders.discarded", None): {"depth": 0}}
    return Place(server, database.settings(), told, rows={"oban": set(told)})


PLACES: dict[str, Callable[[Path], Place]] = {
    "nats": nats_place,
    "redis": redis_place,
    "sidekiq": sidekiq_place,
    "bullmq": bullmq_place,
    "dramatiq": dramatiq_place,
    "rabbitmq": rabbitmq_place,
    "prometheus": prometheus_place,
    "kafka": kafka_place,
    "sqs": sqs_place,
    "postgres": postgres_place,
}
