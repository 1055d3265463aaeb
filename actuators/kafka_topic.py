"""``kind = "kafka_topic"``: a record of a compacted topic for each limit, for programs that follow it.

Keys are JSON of broker, queue and tenant, values the limit as JSON; a record without a value lifts it. Kafka ends no
record by itself: whoever reads counts the lease (``sojourn.Limits("kafka://…")`` does), and the reaper lifts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator

from actuators.base import ActuatorSettings, Demand, Refused, refuse_other
from brokers.errors import ConnectionLost
from brokers.kafka.librdkafka import configuration
from brokers.kafka.settings import KafkaCluster
from lake.errors import SojournError

Result = TypeVar("Result")

#: The topic is small and read whole: compacted often.
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


class KafkaTopicSettings(ActuatorSettings, KafkaCluster):
    """Which topic. Needs READ, WRITE and DESCRIBE of it, and CREATE where there is none."""

    kind: Literal["kafka_topic"] = "kafka_topic"
    timeout_seconds: float = Field(default=3.0, gt=0, le=60, description="for each request to a broker")
    topic: str = Field(default="sojourn-limits", pattern=r"^[A-Za-z0-9._-]+$", description="made where there is none")
    replication: int = Field(default=1, ge=1, description="of a topic that is made")

    @model_validator(mode="after")
    def _can_say_who_it_is(self) -> Self:
        if self.aws is not None:
            raise ValueError(f"an actuator cannot say who it is by {self.mechanism}")
        return self


class KafkaTopic:
    """Writes records that readers take for the limits in force."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: KafkaTopicSettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """The records' key."""
        return json.dumps([demand.broker, demand.queue, demand.tenant])

    def value(self, demand: Demand) -> str:
        """The limit as JSON."""
        return demand.document()

    def read(self, place: str) -> str | None:
        """The newest record of the key."""
        return self._talk(lambda: self._newest(place.encode()))

    def check(self, before: str | None, value: str) -> None:
        """What stands there already is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Put a record, or one without a value."""
        self._talk(lambda: self._put(place.encode(), None if value is None else value.encode()))

    def _newest(self, key: bytes) -> str | None:
        from confluent_kafka import Consumer, TopicPartition

        settings = self._settings
        own = {"group.id": "sojourn-limits", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(configuration(settings) | own)
        try:
            found = consumer.list_topics(settings.topic, settings.timeout_seconds).topics[settings.topic]
            ends, places = {}, []
            for number in found.partitions:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(settings.topic, number), settings.timeout_seconds
                )
                places.append(TopicPartition(settings.topic, number, low))
                if high > low:
                    ends[number] = high
            consumer.assign(places)
            newest: Any = None
            deadline = time.monotonic() + settings.timeout
            while ends:
                for record in consumer.consume(1000, 0.05):
                    if record.error() is None and record.key() == key:
                        newest = record.value()
                for place in consumer.position([TopicPartition(settings.topic, number) for number in ends]):
                    if place.offset >= ends[place.partition]:
                        del ends[place.partition]
                if ends and time.monotonic() > deadline:
                    raise ConnectionLost(f"topic {settings.topic} of {settings.name!r} is not told to its end")
            return None if newest is None else newest.decode("utf-8", "replace")
        finally:
            consumer.close()

    def _put(self, key: bytes, value: bytes | None) -> None:
        from confluent_kafka import KafkaException, Producer
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        settings = self._settings
        config, timeout = configuration(settings), settings.timeout_seconds
        admin = AdminClient(config)
        if settings.topic not in admin.list_topics(timeout=timeout).topics:
            new = NewTopic(settings.topic, 1, settings.replication, config=_CONFIG)
            admin.create_topics([new], operation_timeout=timeout)[settings.topic].result(timeout)
        elif self._cleanup(admin) != "compact":
            raise Refused(f"topic {settings.topic} is not compacted: its limits would be thrown away, or pile up")
        failed: list[Any] = []
        own = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": round(timeout * 1000)}
        producer = Producer(config | own)
        producer.produce(
            settings.topic, value, key, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        if producer.flush(timeout + 1):
            raise ConnectionLost(f"Kafka {settings.name!r} does not take the record within {timeout:g} s")
        if failed:
            raise KafkaException(failed[0])

    def _cleanup(self, admin: Any) -> str:
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        asked = ConfigResource(ConfigResource.Type.TOPIC, self._settings.topic)
        told = admin.describe_configs([asked], request_timeout=self._settings.timeout_seconds)[asked]
        return str(told.result(self._settings.timeout_seconds)["cleanup.policy"].value)

    def _talk(self, work: Callable[[], Result]) -> Result:
        """What ``work`` returns; librdkafka's errors as ours."""
        from confluent_kafka import KafkaError, KafkaException

        name = self._settings.name
        try:
            return work()
        except KafkaException as error:
            reason = error.args[0]
            code = reason.code() if isinstance(reason, KafkaError) else None
            said = reason.str() if isinstance(reason, KafkaError) else str(reason)
            refusals = {
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.SASL_AUTHENTICATION_FAILED,
                KafkaError._AUTHENTICATION,
                KafkaError.POLICY_VIOLATION,
            }
            if code in refusals:
                raise Refused(f"Kafka {name!r} refuses: {said}") from None
            raise ConnectionLost(f"Kafka {name!r} does not answer as it should: {said}") from None
        except (TimeoutError, ValueError) as error:
            if isinstance(error, SojournError):
                raise
            raise ConnectionLost(f"Kafka {name!r} does not answer: {error}") from None
