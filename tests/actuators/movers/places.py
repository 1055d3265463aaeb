"""Every kind of mover as its contract suite meets it: a real server, and an application that uses it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika

from tests.collectors.support import api, connect
from tests.support.elasticmq import ElasticMq
from tests.support.nats import NatsServer
from tests.support.process import Server
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer
from tests.support.waiting import wait_until

#: Tenant and number, as a consumer gets them.
Got = list[tuple[str, int]]


@dataclass
class Place:
    """One kind: how an application sends and takes, and what there is of a mover to be killed at."""

    server: Server
    settings: dict[str, Any]
    send: Callable[[str, Got], None]
    #: Takes (and keeps in its hands) so many messages of the queue.
    take: Callable[[str, int], Got]
    #: What stands in the queue: tenant, number, headers.
    look: Callable[[str], list[tuple[str, int, dict[str, str]]]]
    #: What a child process does before it moves, so that it is killed at its third message.
    killed: str
    ordered: bool = True
    #: Whether the broker hands messages out in no order at all.
    arbitrary: bool = False


_KILL = """
import os, signal
def after(owner, name, calls):
    method, count = getattr(owner, name), [0]
    def wrapped(*arguments, **options):
        count[0] += 1
        if count[0] == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*arguments, **options)
    setattr(owner, name, wrapped)
"""


def nats_place(folder: Path) -> Place:
    """A work queue with one consumer; the queues' names are made by the tests."""
    server = NatsServer(folder)
    server.start()

    def run(work: Any) -> Any:
        async def whole() -> Any:
            connection = await connect(server.url)
            try:
                return await work(connection)
            finally:
                await connection.close()

        return asyncio.run(whole())

    def send(queue: str, messages: Got) -> None:
        async def work(connection: Any) -> None:
            config = {"name": queue, "subjects": [f"{queue}.>"], "retention": "workqueue", "storage": "file"}
            await api(connection, f"STREAM.CREATE.{queue}", config)
            body = {"stream_name": queue, "config": {"durable_name": "work", "ack_policy": "explicit"}}
            await api(connection, f"CONSUMER.CREATE.{queue}.work", body)
            for tenant, number in messages:
                headers = {"Tenant": tenant, "Nats-Msg-Id": f"{tenant}-{number}", "Colour": "blue"}
                await connection.jetstream().publish(f"{queue}.{tenant}", str(number).encode(), headers=headers)

        run(work)

    def take(queue: str, count: int) -> Got:
        async def work(connection: Any) -> Got:
            pull = await connection.jetstream().pull_subscribe_bind("work", queue)
            return [(one.headers["Tenant"], int(one.data)) for one in await pull.fetch(count, timeout=10)]

        return list(run(work))

    def look(queue: str) -> list[tuple[str, int, dict[str, str]]]:
        async def work(connection: Any) -> Any:
            info = await api(connection, f"STREAM.INFO.{queue}")
            if "error" in info:
                return []
            found = []
            for seq in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
                try:
                    one = await connection.jetstream().get_msg(queue, seq)
                except Exception:
                    continue
                found.append((one.headers["Tenant"], int(one.data), dict(one.headers)))
            return found

        return list(run(work))

    killed = _KILL + "from actuators.movers.nats import NatsMover\nafter(NatsMover, '_delete', 2)\n"
    return Place(server, {"kind": "nats", "url": server.url}, send, take, look, killed)


def redis_stream_place(folder: Path) -> Place:
    """A stream with one group."""
    server = RedisServer(folder)
    server.start()

    def send(queue: str, messages: Got) -> None:
        with server.client() as client:
            if not client.exists(queue):
                client.xgroup_create(queue, "work", id="0", mkstream=True)
            for tenant, number in messages:
                client.xadd(queue, {"Tenant": tenant, "number": number, "Colour": "blue"})

    def take(queue: str, count: int) -> Got:
        with server.client(decode_responses=True) as client:
            ((_, entries),) = client.xreadgroup("work", "one", {queue: ">"}, count=count)
            return [(fields["Tenant"], int(fields["number"])) for _, fields in entries]

    def look(queue: str) -> list[tuple[str, int, dict[str, str]]]:
        with server.client(decode_responses=True) as client:
            return [(fields["Tenant"], int(fields["number"]), fields) for _, fields in client.xrange(queue)]

    killed = _KILL + "from brokers.redis.link import Link\nafter(Link, 'demand', 4)\n"
    return Place(server, {"kind": "redis_stream", "url": server.url}, send, take, look, killed)


def redis_list_place(folder: Path) -> Place:
    """A list of JSON as Celery's."""
    server = RedisServer(folder)
    server.start()

    def read(element: str) -> tuple[str, int, dict[str, str]]:
        told = json.loads(element)
        return told["headers"]["tenant"], told["body"], told["headers"]

    def send(queue: str, messages: Got) -> None:
        with server.client() as client:
            for tenant, number in messages:
                headers = {"tenant": tenant, "id": f"{tenant}-{number}", "Colour": "blue"}
                client.lpush(queue, json.dumps({"body": number, "headers": headers}))

    def take(queue: str, count: int) -> Got:
        with server.client(decode_responses=True) as client:
            return [read(client.rpop(queue))[:2] for _ in range(count)]

    def look(queue: str) -> list[tuple[str, int, dict[str, str]]]:
        with server.client(decode_responses=True) as client:
            return [read(one) for one in reversed(client.lrange(queue, 0, -1))]

    killed = _KILL + "from brokers.redis.link import Link\nafter(Link, 'demand', 4)\n"
    return Place(server, {"kind": "redis_list", "url": server.url}, send, take, look, killed, ordered=False)


def rabbitmq_place(folder: Path) -> Place:
    """A durable classic queue."""
    server = RabbitServer(folder)
    server.start()
    held: list[Any] = []

    def got(method: Any, properties: Any, body: bytes) -> tuple[str, int, dict[str, str]]:
        return properties.headers["tenant"], int(body), properties.headers

    def send(queue: str, messages: Got) -> None:
        with server.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(queue, durable=True)
            for tenant, number in messages:
                headers = {"tenant": tenant, "Colour": "blue"}
                name = f"{tenant}-{number}"
                properties = pika.BasicProperties(headers=headers, message_id=name, delivery_mode=2)
                channel.basic_publish("", queue, str(number).encode(), properties)

    def take(queue: str, count: int) -> Got:
        connection = server.connect()
        held.append(connection)
        channel = connection.channel()
        return [got(*channel.basic_get(queue))[:2] for _ in range(count)]

    def look(queue: str) -> list[tuple[str, int, dict[str, str]]]:
        with server.connect() as connection:
            channel, found = connection.channel(), []
            try:
                while (one := channel.basic_get(queue))[0] is not None:
                    found.append(got(*one))
            except pika.exceptions.ChannelClosedByBroker:
                return []  # there is none
            return found  # put back in their order when the channel closes

    settings = {"kind": "rabbitmq", "url": server.amqp_url}
    killed = _KILL + "import pika.adapters.blocking_connection as b\nafter(b.BlockingChannel, 'basic_ack', 3)\n"
    return Place(server, settings, send, take, look, killed, ordered=False)


def sqs_settings(server: ElasticMq, **changes: Any) -> dict[str, Any]:
    """A mover of that server; what it has in its hands when it is killed comes back after four seconds."""
    given = server.settings()
    known = {name: given[name] for name in ("endpoint", "access_key_id", "secret_access_key")}
    return {"kind": "sqs", "timeout": 2.0, **known, **changes}


def sqs_look(server: ElasticMq, queue: str) -> list[dict[str, Any]]:
    """What is in a queue when nobody has anything of it in his hands, as SQS tells messages, in the order received."""
    if queue not in [url.rsplit("/", 1)[-1] for url in server.ask("ListQueues").get("QueueUrls", ())]:
        return []
    address = server.address(queue)

    def idle() -> bool:
        told = server.ask("GetQueueAttributes", QueueUrl=address, AttributeNames=["All"])["Attributes"]
        return int(told["ApproximateNumberOfMessagesNotVisible"]) == 0

    wait_until(idle, "messages to come back by themselves", seconds=30)
    found: list[dict[str, Any]] = []
    asked = {"QueueUrl": address, "MaxNumberOfMessages": 10, "VisibilityTimeout": 600}
    while some := server.ask("ReceiveMessage", **asked, AttributeNames=["All"], MessageAttributeNames=["All"]).get(
        "Messages"
    ):
        found += some
    for one in found:
        server.ask("ChangeMessageVisibility", QueueUrl=address, ReceiptHandle=one["ReceiptHandle"], VisibilityTimeout=0)
    return found


def sqs_place(folder: Path) -> Place:
    """A standard queue of ElasticMQ."""
    server = ElasticMq(folder)
    server.start()

    def send(queue: str, messages: Got) -> None:
        address = server.make(queue)
        for tenant, number in messages:
            told = {"tenant": tenant, "Colour": "blue"}
            attributes = {name: {"DataType": "String", "StringValue": value} for name, value in told.items()}
            server.ask("SendMessage", QueueUrl=address, MessageBody=str(number), MessageAttributes=attributes)
            time.sleep(0.002)  # what came in one millisecond the server hands out in any order

    def got(one: dict[str, Any]) -> tuple[str, int, dict[str, str]]:
        attributes = {name: told["StringValue"] for name, told in one["MessageAttributes"].items()}
        return attributes["tenant"], int(one["Body"]), attributes

    def take(queue: str, count: int) -> Got:
        asked = {"QueueUrl": server.address(queue), "MaxNumberOfMessages": count, "MessageAttributeNames": ["All"]}
        return [got(one)[:2] for one in server.ask("ReceiveMessage", **asked)["Messages"]]

    def look(queue: str) -> list[tuple[str, int, dict[str, str]]]:
        return sorted(map(got, sqs_look(server, queue)), key=lambda one: (one[1], one[0]))

    killed = _KILL + "from actuators.movers.sqs import SqsMover\nafter(SqsMover, '_delete', 2)\n"
    return Place(server, sqs_settings(server), send, take, look, killed, ordered=False, arbitrary=True)


PLACES: dict[str, Callable[[Path], Place]] = {
    "nats": nats_place,
    "redis_stream": redis_stream_place,
    "redis_list": redis_list_place,
    "rabbitmq": rabbitmq_place,
    "sqs": sqs_place,
}
