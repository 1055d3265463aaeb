"""``kind = "kafka"``: how far a group is behind the end of a topic, all of its partitions together.

Source: Kafka's protocol, ``ListOffsets`` and ``OffsetFetch``, asked together through librdkafka. What a consumer has
fetched and not committed counts as waiting, as nobody but the consumer knows of it: a group that commits once in five
seconds seems to be five seconds behind, which metrics do not confirm, and then its glances do not count.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from alerts.control.depth.base import DepthSettings, Unknown
from brokers.errors import ConnectionLost
from brokers.kafka.librdkafka import configuration
from brokers.kafka.settings import KafkaCluster


class KafkaDepthSettings(DepthSettings, KafkaCluster):
    """Which cluster, and whose lag counts. Needs DESCRIBE of the group and of the topics."""

    kind: Literal["kafka"] = "kafka"
    group: str = Field(min_length=1, description="the consumer group whose lag is asked for")
    timeout_seconds: float = Field(default=1.0, gt=0, le=60, description="for each request to a broker")

    @model_validator(mode="after")
    def _can_say_who_it_is(self) -> Self:
        if self.aws is not None:
            raise ValueError(f"glances cannot say who they are by {self.mechanism}")
        return self


class KafkaDepth:
    """Asks through a client of its own."""

    def __init__(self, settings: KafkaDepthSettings) -> None:
        self._settings = settings
        self._admin: Any = None
        self._partitions: dict[str, list[int]] = {}

    def open(self) -> None:
        """Connect."""
        from confluent_kafka.admin import AdminClient

        self.close()
        self._admin = AdminClient(configuration(self._settings))

    def waiting(self, queue: str) -> float:
        """End less committed offset, over the partitions. Unknown where the group has committed nothing on one."""
        from confluent_kafka import KafkaException

        if self._admin is None:
            raise ConnectionLost(f"Kafka {self._settings.name!r} is not connected")
        try:
            return self._asked(queue)
        except KafkaException as error:
            self._partitions.clear()  # there may be others by now
            raise ConnectionLost(f"Kafka {self._settings.name!r}: {error.args[0]}") from None
        except TimeoutError:
            raise ConnectionLost(f"Kafka {self._settings.name!r} does not answer") from None

    def close(self) -> None:
        """Disconnect."""
        self._admin = None
        self._partitions.clear()

    def _asked(self, topic: str) -> float:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition, admin

        spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]  # it is there, and not in its __all__
        timeout = self._settings.timeout
        if topic not in self._partitions:
            told = self._admin.list_topics(topic, timeout=timeout).topics.get(topic)
            if told is None or told.error is not None or not told.partitions:
                raise Unknown(f"there is no topic {topic!r}")
            self._partitions[topic] = sorted(told.partitions)
        places = [TopicPartition(topic, number) for number in self._partitions[topic]]
        wanted = ConsumerGroupTopicPartitions(self._settings.group, places)
        (group,) = self._admin.list_consumer_group_offsets([wanted], request_timeout=timeout).values()
        ends = self._admin.list_offsets({place: spec.latest() for place in places}, request_timeout=timeout)
        newest = {place.partition: future.result(timeout).offset for place, future in ends.items()}
        committed = {one.partition: one.offset for one in group.result(timeout).topic_partitions}
        if any(committed.get(number, -1) < 0 for number in newest):
            raise Unknown(f"group {self._settings.group!r} has committed nothing on a partition of {topic!r}")
        return float(sum(max(0, end - committed[number]) for number, end in newest.items()))
