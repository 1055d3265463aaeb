"""Each adapter around the vendor's own client, on a real server: what the recorder tells is what happened there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pika
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import sojourn
from sojourn.client.adapters.boto3 import RecordingSqs
from sojourn.client.adapters.confluent_kafka import RecordingConsumer, RecordingProducer
from sojourn.client.adapters.pika import RecordingChannel
from sojourn.client.adapters.redis import RecordingRedis
from sojourn.client.adapters.wrapping import Deliveries
from tests.client.collector import Collector
from tests.support.elasticmq import ElasticMq
from tests.support.facts import proves
from tests.support.kafka import KafkaServer
from tests.support.rabbitmq import RabbitServer
from tests.support.redis import RedisServer
from tests.support.waiting import PATIENCE

Eventually = Callable[..., None]
Life = list[tuple[Any, ...]]


@pytest.fixture
def recorder(collector: Collector) -> Iterator[sojourn.Recorder]:
    with sojourn.Recorder(collector.url, flush_interval=0.05) as recorder:
        yield recorder


@pytest.fixture
def life(recorder: sojourn.Recorder, collector: Collector) -> Callable[[str], Life]:
    """What was told of one queue: (event type, attempt, tenant, subscriber, reason) in order."""

    def told(queue: str) -> Life:
        assert recorder.flush(60)
        return [
            (event["event_type"], *(event.get(name) for name in ("attempt", "tenant", "subscriber", "reason")))
            for event in collector.events
            if event["queue"] == queue
        ]

    return told


def polled(collector: Collector, queue: str, subscriber: str | None = None) -> tuple[int, int]:
    """Polls and empty polls of a queue, all that were told."""
    rows = [row for row in collector.polls if (row["queue"], row.get("subscriber")) == (queue, subscriber)]
    return sum(row["polls"] for row in rows), sum(row["empty_polls"] for row in rows)


def published(collector: Collector, queue: str) -> tuple[int, int, int]:
    """Publishes to a queue, those that failed, and those of which a duration is told."""
    rows = [row for row in collector.publishes if row["queue"] == queue]
    took = sum(count for row in rows for _, count in row["seconds_histogram"])
    return sum(row["publishes"] for row in rows), sum(row["errors"] for row in rows), took


def close_to(event: dict[str, Any], before: float) -> bool:
    """Whether the event's enqueue time lies between ``before`` and now, give or take a second of rounding."""
    return before - 1 <= event["enqueued_at"] / 1e6 <= time.time() + 1


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


class TestRedis:
    @pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 3}], ids=str)
    @proves("streams", "per tenant", "our client")
    def test_a_stream_s_entries_live_as_they_did(
        self,
        redis_server: RedisServer,
        recorder: sojourn.Recorder,
        collector: Collector,
        life: Callable[[str], Life],
        options: dict[str, Any],
    ) -> None:
        with redis_server.client(**options) as plain:
            stream = f"orders-{len(options)}-{options.get('protocol')}"
            client = RecordingRedis(plain, recorder)
            before = time.time()
            client.xgroup_create(stream, "billing", mkstream=True)
            assert not client.xreadgroup("billing", "c1", {stream: ">"}, block=50)
            ids = [client.xadd(stream, {"tenant": "acme", "n": number}) for number in range(3)]
            client.xreadgroup("billing", "c1", {stream: ">"}, count=10)
            assert client.xack(stream, "billing", ids[0]) == 1
            assert client.xack(stream, "billing", ids[0]) == 0
            client.xreadgroup("billing", "c1", {stream: "0"}, count=1)
            client.xautoclaim(stream, "billing", "c2", 0, start_id=ids[2])
            assert client.xack(stream, "billing", ids[1], ids[2]) == 2
            assert client.xlen(stream) == 3
        one = ("acme", "billing", None)
        assert life(stream) == [
            *[("enqueued", None, "acme", None, None)] * 3,
            *[("received", 1, *one)] * 3,
            ("completed", 1, *one),
            ("received", 2, *one),
            ("received", 2, *one),
            *[("completed", 2, *one)] * 2,
        ]
        told = [event for event in collector.events if event["queue"] == stream]
        assert all(event["broker"] == "redis" and close_to(event, before) for event in told)
        assert len({event["message_id"] for event in told}) == 3
        assert published(collector, stream) == (3, 0, 3)
        polls, empty = polled(collector, stream, "billing")
        assert 45 <= empty < polls


@pytest.fixture(scope="module")
def sqs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticMq]:
    with ElasticMq(tmp_path_factory.mktemp("elasticmq")) as server:
        yield server


class TestSqs:
    @pytest.fixture
    def sqs(self, sqs_server: ElasticMq, recorder: sojourn.Recorder) -> RecordingSqs:
        client = boto3.client(
            "sqs", endpoint_url=sqs_server.url, region_name="x", aws_access_key_id="x", aws_secret_access_key="x"
        )
        return RecordingSqs(client, recorder)

    @proves("sqs", "per tenant", "our client")
    def test_a_queue_s_messages_live_as_they_did(
        self, sqs: RecordingSqs, collector: Collector, life: Callable[[str], Life]
    ) -> None:
        before = time.time()
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        tenant = {"tenant": {"DataType": "String", "StringValue": "acme"}}
        sqs.send_message(QueueUrl=url, MessageBody="1", MessageAttributes=tenant)
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(2)])
        (first,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1)["Messages"]
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
        messages: list[Any] = []
        deadline = time.monotonic() + PATIENCE * 20
        while len(messages) < 3 and time.monotonic() < deadline:
            messages += sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
        rest = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages[1:])]
        sqs.delete_message_batch(QueueUrl=url, Entries=rest)
        assert not sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages")
        told = life("orders")
        assert [kind for kind, *_ in told].count("enqueued") == 3
        assert [kind for kind, *_ in told].count("completed") == 3
        by_id = {event["message_id"]: [] for event in collector.events}
        for event in collector.events:
            by_id[event["message_id"]].append((event["event_type"], event.get("attempt"), event.get("tenant")))
        returned = by_id.pop(first["MessageId"])
        assert [entry[:2] for entry in returned] == [
            ("enqueued", None),
            ("received", 1),
            ("failed", 1),
            ("received", 2),
            ("completed", 2),
        ]
        for entries in by_id.values():
            assert [entry[:2] for entry in entries] == [("enqueued", None), ("received", 1), ("completed", 1)]
        tenants = {entry[2] for entry in returned} | {entry[2] for entries in by_id.values() for entry in entries}
        assert tenants == {"acme", None}
        assert all(close_to(event, before) for event in collector.events if event["event_type"] == "received")
        assert published(collector, "orders") == (3, 0, 3)
        polls, empty = polled(collector, "orders")
        assert 900 <= empty < polls

    def test_an_attempt_renews_its_visibility_and_deleting_completes_it(
        self, sqs: RecordingSqs, life: Callable[[str], Life]
    ) -> None:
        url = sqs.create_queue(QueueName="slow", Attributes={"VisibilityTimeout": "2"})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="1")
        (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
        with sqs.attempt(url, message, 2) as attempt:
            until = time.monotonic() + 3
            while time.monotonic() < until:
                attempt.check()
                assert not sqs._inner.receive_message(QueueUrl=url).get("Messages"), "nobody else got it"
                time.sleep(0.2)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert attempt.heartbeats >= 3
        sqs.send_message(QueueUrl=url, MessageBody="2")
        (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
        with pytest.raises(KeyError), sqs.attempt(url, message, 30):
            raise KeyError("x")
        assert [(kind, reason) for kind, *_, reason in life("slow")] == [
            *[("enqueued", None), ("received", None), ("completed", None)],
            *[("enqueued", None), ("received", None), ("failed", "KeyError")],
        ]


@pytest.fixture(scope="module")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    server = RabbitServer(tmp_path_factory.mktemp("rabbitmq"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


class TestRabbitMq:
    @pytest.fixture
    def channel(self, rabbit_server: RabbitServer, recorder: sojourn.Recorder) -> Iterator[RecordingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(rabbit_server.amqp_url))
        channel = RecordingChannel(connection.channel(), recorder)
        channel.confirm_delivery()
        yield channel
        connection.close()

    def test_messages_with_the_same_properties_are_told_apart(
        self, channel: RecordingChannel, recorder: sojourn.Recorder, collector: Collector
    ) -> None:
        channel.queue_declare("same")
        properties = pika.BasicProperties(delivery_mode=2)
        for _ in range(3):
            channel.basic_publish("", "same", b"", properties)
        assert recorder.flush(60)
        assert len({event["message_id"] for event in collector.events}) == 3
        assert properties == pika.BasicProperties(delivery_mode=2)

    @pytest.mark.parametrize(("queue_type", "third"), [("classic", 2), ("quorum", 3)])
    @proves("rabbitmq", "per tenant", "our client")
    def test_a_queue_s_messages_live_as_they_did(
        self,
        channel: RecordingChannel,
        collector: Collector,
        life: Callable[[str], Life],
        queue_type: str,
        third: int,
    ) -> None:
        before = time.time()
        channel.queue_declare(queue_type, durable=True, arguments={"x-queue-type": queue_type})
        headers = {"tenant": "acme"}
        channel.basic_publish("", queue_type, b"1", pika.BasicProperties(headers=headers, priority=3))
        channel.basic_publish("amq.topic", "elsewhere", b"nobody knows where to")
        seen: list[Any] = []

        def work(given: Any, method: Any, properties: Any, body: bytes) -> None:
            seen.append((body, properties.message_id))
            if len(seen) < 3:
                given.basic_nack(method.delivery_tag, requeue=True)
            else:
                given.basic_ack(method.delivery_tag)
                given.stop_consuming()

        channel.basic_consume(queue_type, work)
        channel.start_consuming()
        assert {body for body, _ in seen} == {b"1"}
        one = ("acme", None)
        assert life(queue_type) == [
            ("enqueued", None, *one, None),
            ("received", 1, *one, None),
            ("failed", 1, *one, "nack"),
            ("received", 2, *one, None),
            ("failed", 2, *one, "nack"),
            ("received", third, *one, None),
            ("completed", third, *one, None),
        ]
        told = [event for event in collector.events if event["queue"] == queue_type]
        assert len(told) == len(collector.events)
        assert len({event["message_id"] for event in told}) == 1
        assert len({event["enqueued_at"] for event in told}) == 1
        assert close_to(told[0], before)
        assert published(collector, queue_type) == (1, 0, 1)

    def test_getting_rejecting_and_acknowledging_many_at_once(
        self, channel: RecordingChannel, collector: Collector, life: Callable[[str], Life]
    ) -> None:
        channel.queue_declare("pulled")
        assert channel.basic_get("pulled") == (None, None, None)
        for number in range(4):
            channel.basic_publish("", "pulled", b"x", pika.BasicProperties(message_id=f"m{number}"))
        tags = [channel.basic_get("pulled")[0].delivery_tag for _ in range(3)]
        channel.basic_get("pulled", auto_ack=True)
        channel.basic_reject(tags[0], requeue=False)
        channel.basic_ack(tags[2], multiple=True)
        told = [(kind, reason) for kind, *_, reason in life("pulled")]
        assert told == [
            *[("enqueued", None)] * 4,
            *[("received", None)] * 4,
            ("completed", None),
            ("dead_lettered", "reject"),
            *[("completed", None)] * 2,
        ]
        polls, empty = polled(collector, "pulled")
        assert 1 <= empty < polls

    def test_consuming_by_iteration(self, channel: RecordingChannel, life: Callable[[str], Life]) -> None:
        channel.queue_declare("iterated")
        channel.basic_publish("", "iterated", b"x", pika.BasicProperties(message_id="m"))
        for method, _, _ in channel.consume("iterated", auto_ack=True, inactivity_timeout=0.5):
            if method is None:
                break
        channel.cancel()
        assert [kind for kind, *_ in life("iterated")] == ["enqueued", "received", "completed"]


@pytest.fixture(scope="module")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        server.make_topics("orders", "automatic", partitions=2)
        yield server


class TestKafka:
    def produce(self, kafka_server: KafkaServer, recorder: sojourn.Recorder, topic: str) -> list[Any]:
        producer = RecordingProducer(Producer({"bootstrap.servers": kafka_server.bootstrap}), recorder)
        reports: list[Any] = []
        producer.produce(topic, b"a", partition=0, headers=[("tenant", b"acme")])
        producer.produce(topic, b"b", partition=1, headers={"tenant": "zeta"}, callback=lambda *r: reports.append(r))
        producer.produce(topic, b"c", None, 0, lambda *report: reports.append(report))
        assert producer.flush(20) == 0
        assert len(producer) == 0
        return reports

    def consumer(self, kafka_server: KafkaServer, group: str, **options: Any) -> Any:
        return Consumer(
            {
                "bootstrap.servers": kafka_server.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **options,
            }
        )

    @proves("kafka", "per tenant", "our client")
    def test_a_topic_s_records_live_as_they_did(
        self, kafka_server: KafkaServer, recorder: sojourn.Recorder, collector: Collector, life: Callable[[str], Life]
    ) -> None:
        before = time.time()
        assert len(self.produce(kafka_server, recorder, "orders")) == 2
        consumer = RecordingConsumer(self.consumer(kafka_server, "billing"), recorder, group="billing")
        consumer.subscribe(["orders"])
        got: dict[bytes, Any] = {}
        deadline = time.monotonic() + PATIENCE * 30
        while len(got) < 3 and time.monotonic() < deadline:
            if (message := consumer.poll(0.2)) is not None:
                got[message.value()] = message
        consumer.commit(message=got[b"a"], asynchronous=False)
        consumer.commit(offsets=[TopicPartition("orders", 1, 1)], asynchronous=False)
        consumer.commit(asynchronous=False)
        consumer.seek(TopicPartition("orders", 1, 0))
        while (message := consumer.poll(0.5)) is None:
            assert time.monotonic() < deadline
        assert [kept.offset for kept in consumer.committed([TopicPartition("orders", 0)], 10)] == [2]
        consumer.close()
        told = life("orders")
        lives: dict[str, list[str]] = {}
        tenants: dict[str, set[str | None]] = {}
        for event in collector.events:
            lives.setdefault(event["message_id"], []).append(event["event_type"])
            tenants.setdefault(event["message_id"], set()).add(event.get("tenant"))
            assert event["broker"] == "kafka"
            assert close_to(event, before)
        assert lives == {
            "orders.0.0": ["enqueued", "received", "completed"],
            "orders.1.0": ["enqueued", "received", "completed", "received"],
            "orders.0.1": ["enqueued", "received", "completed"],
        }
        assert tenants == {"orders.0.0": {"acme"}, "orders.1.0": {"zeta"}, "orders.0.1": {None}}
        assert {entry[3] for entry in told} == {None, "billing"}
        assert polled(collector, "orders", "billing")[0] > 0
        assert published(collector, "orders") == (3, 0, 3)

    def test_with_automatic_commits_the_next_poll_completes(
        self, kafka_server: KafkaServer, recorder: sojourn.Recorder, life: Callable[[str], Life]
    ) -> None:
        self.produce(kafka_server, recorder, "automatic")
        inner = self.consumer(kafka_server, "auto", **{"enable.auto.commit": True})
        consumer = RecordingConsumer(inner, recorder, group="auto", auto_commit=True)
        consumer.subscribe(["automatic"])
        got, deadline = 0, time.monotonic() + PATIENCE * 30
        while got < 3 and time.monotonic() < deadline:
            got += len(consumer.consume(1, 0.2))
        kinds = [kind for kind, *_ in life("automatic")]
        assert (kinds.count("received"), kinds.count("completed")) == (3, 2)
        consumer.close()
        kinds = [kind for kind, *_ in life("automatic")]
        assert (kinds.count("received"), kinds.count("completed")) == (3, 3)

    def test_what_the_broker_does_not_take_is_not_enqueued(
        self, recorder: sojourn.Recorder, collector: Collector
    ) -> None:
        reports: list[Any] = []
        inner = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 200, "log_level": 0})
        producer = RecordingProducer(inner, recorder)
        producer.produce("orders", b"x", on_delivery=lambda *report: reports.append(report))
        producer.flush(10)
        assert reports[0][0] is not None
        assert recorder.flush()
        assert collector.events == []
        assert published(collector, "orders") == (1, 1, 0)


def test_a_child_forked_while_a_delivery_is_told_tells_its_own(recorder: sojourn.Recorder) -> None:
    deliveries = Deliveries(recorder)
    with deliveries._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if deliveries._lock.acquire(timeout=5) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_claimed_entry_that_was_deleted_is_no_delivery(
    recorder: sojourn.Recorder, life: Callable[[str], Life]
) -> None:
    class Redis6:
        """Redis 7, which the tests have, leaves such entries out."""

        def xautoclaim(self, *_: Any) -> list[Any]:
            return [b"0-0", [(None, None), (b"1-1", {b"tenant": b"acme"})]]

    RecordingRedis(Redis6(), recorder).xautoclaim("s", "g", "c", 0)
    assert life("s") == [("received", 2, "acme", "g", None)]


def test_an_adapter_passes_on_what_it_does_not_know(recorder: sojourn.Recorder, tmp_path: Path) -> None:
    class Client:
        setting = 7

        def other(self) -> str:
            return "theirs"

    wrapped = RecordingRedis(Client(), recorder)
    assert (wrapped.setting, wrapped.other()) == (7, "theirs")
    with pytest.raises(AttributeError):
        _ = wrapped.nothing
