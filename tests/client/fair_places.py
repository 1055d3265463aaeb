"""Brokers over which a fair consumer is tried: how to send to them, to consume, and to ask what is left.

``python -m tests.client.fair_places KIND ADDRESS QUEUE FILE`` consumes until it is killed, and writes what it handled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3
import pika
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from sojourn import FairConsumer
from sojourn.client.adapters.fair_kafka import FairKafka
from sojourn.client.adapters.fair_pika import FairPika
from sojourn.client.adapters.fair_redis import FairRedis
from sojourn.client.adapters.fair_sqs import FairSqs

Body = Callable[[str], object]


class Redis:
    """A stream and its one group."""

    def __init__(self, address: str) -> None:
        self._client = redis.Redis.from_url(address)

    def make(self, queue: str) -> None:
        self._client.xgroup_create(queue, "workers", "0", mkstream=True)

    def send(self, queue: str, messages: Sequence[tuple[str, str]]) -> None:
        for tenant, body in messages:
            self._client.xadd(queue, {"tenant": tenant, "body": body})

    def consumer(self, queue: str, handle: Body, *, name: str = "one", **options: Any) -> FairConsumer[Any]:
        def work(entry: Any) -> None:
            handle(entry[1][b"body"].decode())

        return FairRedis(self._client, queue, "workers", name, work, **options)

    def left(self, queue: str) -> int:
        (group,) = self._client.xinfo_groups(queue)
        return int(group["pending"]) + int(group["lag"] or 0)


class Sqs:
    """A queue that gives a message again two seconds after its consumer died."""

    def __init__(self, address: str) -> None:
        self._client = boto3.client(
            "sqs", endpoint_url=address, region_name="x", aws_access_key_id="x", aws_secret_access_key="x"
        )

    def make(self, queue: str) -> None:
        self._client.create_queue(QueueName=queue, Attributes={"VisibilityTimeout": "2"})

    def _url(self, queue: str) -> str:
        return str(self._client.get_queue_url(QueueName=queue)["QueueUrl"])

    def send(self, queue: str, messages: Sequence[tuple[str, str]]) -> None:
        for tenant, body in messages:
            attributes = {"tenant": {"DataType": "String", "StringValue": tenant}}
            self._client.send_message(QueueUrl=self._url(queue), MessageBody=body, MessageAttributes=attributes)

    def consumer(self, queue: str, handle: Body, **options: Any) -> FairConsumer[Any]:
        return FairSqs(self._client, self._url(queue), lambda message: handle(message["Body"]), **options)

    def left(self, queue: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._client.get_queue_attributes(QueueUrl=self._url(queue), AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


class Rabbit:
    """A durable queue."""

    def __init__(self, address: str) -> None:
        self._address = address

    def _channel(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(self._address)).channel()

    def make(self, queue: str) -> None:
        channel = self._channel()
        channel.queue_declare(queue, durable=True)
        channel.connection.close()

    def send(self, queue: str, messages: Sequence[tuple[str, str]]) -> None:
        channel = self._channel()
        channel.confirm_delivery()
        for tenant, body in messages:
            channel.basic_publish("", queue, body.encode(), pika.BasicProperties(headers={"tenant": tenant}))
        channel.connection.close()

    def consumer(self, queue: str, handle: Body, **options: Any) -> FairConsumer[Any]:
        return FairPika(self._channel(), queue, lambda message: handle(message.body.decode()), **options)

    def left(self, queue: str) -> int:
        channel = self._channel()
        count = channel.queue_declare(queue, passive=True).method.message_count
        channel.connection.close()
        return int(count)


class Kafka:
    """A topic of two partitions, a tenant in one of them."""

    def __init__(self, address: str) -> None:
        self._address = address

    def make(self, queue: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._address})
        for future in admin.create_topics([NewTopic(queue, 2, 1)]).values():
            future.result()

    def send(self, queue: str, messages: Sequence[tuple[str, str]]) -> None:
        producer = Producer({"bootstrap.servers": self._address})
        for tenant, body in messages:
            producer.produce(queue, body.encode(), key=tenant.encode(), headers={"tenant": tenant}, partition=0)
        producer.flush(30)

    def consumer(self, queue: str, handle: Body, **options: Any) -> FairConsumer[Any]:
        config = {
            "bootstrap.servers": self._address, "group.id": "workers", "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }  # fmt: skip
        return FairKafka(Consumer, config, [queue], lambda message: handle(message.value().decode()), **options)

    def left(self, queue: str) -> int:
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "workers"})
        partitions = [TopicPartition(queue, number) for number in range(2)]
        total = 0
        for partition in consumer.committed(partitions, 10):
            low, high = consumer.get_watermark_offsets(partition, 10)
            total += high - max(low, partition.offset)
        consumer.close()
        return total


KINDS: dict[str, Any] = {"redis": Redis, "sqs": Sqs, "rabbitmq": Rabbit, "kafka": Kafka}


def _work(kind: str, address: str, queue: str, path: Path) -> None:
    with path.open("a") as file:

        def handle(body: str) -> None:
            time.sleep(0.005)
            file.write(f"{body}\n")
            file.flush()

        KINDS[kind](address).consumer(queue, handle, workers=2, buffer=60).run()


if __name__ == "__main__":
    _work(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
