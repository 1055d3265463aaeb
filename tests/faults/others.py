"""What goes wrong on RabbitMQ and NATS; the first of their servers that is named is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.collectors.support import connect, make_consumer, make_stream
from tests.faults.fault import BROKER, Fault, Row, Scene, nothing, started
from tests.support.nats import NatsServer
from tests.support.ports import free_ports
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until


def _rabbit(server: RabbitServer) -> Row:
    (away,) = free_ports(1)
    where = {"url": f"http://127.0.0.1:{away}", "servers": [server.url]}
    broker = {"kind": "rabbitmq", "name": BROKER, "user": server.user, "password": {"env": "RABBIT_PASSWORD"}}
    return {"brokers": [{**broker, **where}]}


def _unconsumed(server: RabbitServer) -> Callable[[], None]:
    with server.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("mails", durable=True)
        for _ in range(500):
            channel.basic_publish("", "mails", b"x")
    # The node tells of them a while later, and a queue that has just grown to 500 is one that grows.
    wait_until(lambda: server.api("GET", "queues/%2F/mails").get("messages_ready") == 500, "the node to count them")
    return nothing


def _nats(server: NatsServer) -> Row:
    (away,) = free_ports(1)
    where = {"url": f"nats://127.0.0.1:{away}", "servers": [server.url]}
    streams = {"streams": ["AUDIT", "JOBS"], "tap": {"enabled": False}}
    return {"brokers": [{"kind": "nats", "name": BROKER, **where, **streams}]}


def _log(server: NatsServer) -> Callable[[], None]:
    async def work() -> None:
        connection = await connect(server.url)
        await make_stream(connection, "AUDIT", retention="limits")
        for _ in range(100):
            await connection.jetstream().publish("audit.a", b"x")
        await connection.close()

    asyncio.run(work())
    return nothing


def _held(server: NatsServer) -> Callable[[], None]:
    async def work() -> None:
        connection = await connect(server.url)
        await make_stream(connection, "JOBS")
        await make_consumer(connection, "JOBS", "work", max_ack_pending=10, ack_wait=3600 * 10**9)
        stream = connection.jetstream()
        for _ in range(30):
            await stream.publish("jobs.a", b"x")
        pull = await stream.pull_subscribe_bind("work", "JOBS")
        assert len(await pull.fetch(10, timeout=20)) == 10  # and none is acknowledged
        await connection.close()

    asyncio.run(work())
    return nothing


RABBITMQ = Scene(
    "rabbitmq",
    lambda folder: started(RabbitServer(folder)),
    _rabbit,
    (
        Fault(
            "nobody-consumes",
            "500 messages in a RabbitMQ queue that nobody consumes; of two management addresses the first is away",
            _unconsumed,
            "mails",
            lambda row: row["depth"] == 500,
            ("depth", "in_flight", "consumers"),
            {"depth": 500, "in_flight": 0, "consumers": 0},
            frozenset({"NoConsumers"}),
            ("sojourn_queue_depth{", "sojourn_queue_consumers{"),
            page=("Nobody consumes mails",),
        ),
    ),
    {"RABBIT_PASSWORD": RabbitServer.password},
)

NATS = Scene(
    "nats",
    lambda folder: started(NatsServer(folder)),
    _nats,
    (
        Fault(
            "nats-log",
            "A NATS stream of limits that no consumer reads: a log; of two servers the first is away",
            _log,
            "AUDIT",
            lambda row: row["queue"] == "AUDIT",
            ("depth", "oldest_age_seconds", "mode", "drain_state"),
            {"depth": None, "oldest_age_seconds": None, "mode": None, "drain_state": None},
            absent=("sojourn_queue_depth{", "sojourn_queue_oldest_age_seconds{"),
            page=("AUDIT", "the broker tells no depth"),
        ),
        Fault(
            "slots-are-held",
            "All ten that a NATS consumer may have in flight are held by a client that went away, and twenty wait",
            _held,
            "JOBS",
            lambda row: row["in_flight"] == 10 and row["drain_state"] == "stalled",
            ("depth", "in_flight", "in_flight_limit", "drain_state"),
            {"depth": 20, "in_flight": 10, "in_flight_limit": 10, "drain_state": "stalled"},
            frozenset({"BusyButDead", "NothingAcknowledged"}),
            ("sojourn_queue_in_flight{", "sojourn_queue_in_flight_limit{"),
            page=("JOBS has all of 10 in flight, and nothing completes",),
        ),
    ),
)
