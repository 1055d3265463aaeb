"""The tap's side of a Kafka cluster: only I/O. Consumes by assignment, in no group, and commits nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from collectors.kafka.connection import CREDENTIALS, FORBIDDEN, UNHEARD, connection, explained, explaining
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.tap.records import Place, Records, gather, tenant_finder, without_collection

#: What a partition answers while its leader is being found; librdkafka does not call these retriable.
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic that is there: its identifier, another one when it is recreated, and its partitions."""

    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a consumer gave: records, places read to their end, places whose offset is not there."""

    records: dict[Place, Records]
    ended: set[Place]
    out_of_range: set[Place]


class TapConsumer:
    """Reads assigned partitions from given offsets; belongs to one thread."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._tenants = {topic.name: tenant_finder(topic) for topic in broker.tap.topics}
        self._config = connection(broker) | {
            "group.id": "sojourn-tap",  # a name that librdkafka wants: never joined, never committed to
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # what retention removed is to be counted, not skipped
            "isolation.level": "read_committed" if broker.tap.read_committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 16 << 10,
            "fetch.message.max.bytes": 1 << 20,
        }
        self._consumer: Consumer | None = None

    def assign(self, starts: Mapping[Place, int]) -> None:
        """Read these places from these offsets, and nothing else."""
        if self._consumer is None:
            self._consumer = Consumer(self._config, logger=UNHEARD)
        places = [TopicPartition(topic, partition, at) for (topic, partition), at in starts.items()]
        explaining(self._broker, lambda: self._consumer.assign(places) if self._consumer else None)

    def consume(self, most: int, seconds: float) -> Consumed:
        """At most ``most`` records, waiting no longer than ``seconds`` for them."""
        assert self._consumer is not None
        consumer = self._consumer
        with without_collection():
            given = explaining(self._broker, lambda: consumer.consume(most, timeout=seconds))
            records = gather([message for message in given if message.error() is None], self._tenants)
            return self._sorted(records, [message for message in given if message.error() is not None])

    def _sorted(self, records: dict[Place, Records], others: Iterable[Any]) -> Consumed:
        found = Consumed(records, set(), set())
        for message in others:
            error = message.error()
            topic, partition, code = message.topic(), message.partition(), error.code()
            if topic is None or partition is None:
                continue  # about the connection: librdkafka repairs it
            place = topic, partition
            if code == KafkaError._PARTITION_EOF:
                found.ended.add(place)
            elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                found.out_of_range.add(place)
            elif code in CREDENTIALS | FORBIDDEN:
                raise explained(KafkaException(error), self._broker)
            # All others librdkafka repairs by itself, or the next look at the cluster shows that it is away.
        return found

    def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class TapAdmin:
    """Asks the cluster; any thread may."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._timeout = broker.timeout_seconds
        self._admin: AdminClient | None = None

    def open(self) -> None:
        """Connect; ConnectionLost or CredentialsRefused if the cluster does not answer."""
        self._admin = AdminClient(connection(self._broker), logger=UNHEARD)
        explaining(self._broker, lambda: self._kafka.list_topics(timeout=self._timeout))

    def close(self) -> None:
        """Disconnect."""
        self._admin = None

    def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Those of ``names`` that are there."""
        return explaining(self._broker, lambda: self._topics(list(names)))

    def ends(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """Place → its first offset and the one behind its last; a place that cannot be asked now is left out."""
        wanted = list(places)
        firsts = self._offsets(wanted, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        lasts = self._offsets(wanted, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {place: (firsts[place], lasts[place]) for place in wanted if place in firsts and place in lasts}

    def lows(self, places: Iterable[Place]) -> dict[Place, int]:
        """Place → its first offset; a place that cannot be asked now is left out."""
        return self._offsets(list(places), OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def committed(self, groups: Mapping[str, list[Place]]) -> dict[str, dict[Place, int]]:
        """Group → place → committed offset; what the group never committed is left out."""
        return explaining(self._broker, lambda: self._committed(groups))

    @property
    def _kafka(self) -> AdminClient:
        assert self._admin is not None, "it is not open"
        return self._admin

    def _topics(self, names: list[str]) -> dict[str, TopicFacts]:
        futures = self._kafka.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        found = {}
        for name, future in futures.items():
            try:
                told = future.result(self._timeout)
            except KafkaException as error:
                if error.args[0].code() in _ABSENT:
                    continue
                raise
            found[name] = TopicFacts(str(told.topic_id), tuple(one.id for one in told.partitions))
        return found

    def _offsets(self, places: list[Place], spec: OffsetSpec) -> dict[Place, int]:
        if not places:
            return {}

        def work() -> dict[Place, int]:
            futures = self._kafka.list_offsets(
                {TopicPartition(*place): spec for place in places}, request_timeout=self._timeout
            )
            found = {}
            for at, future in futures.items():
                try:
                    found[at.topic, at.partition] = int(future.result(self._timeout).offset)
                except KafkaException as error:
                    if error.args[0].code() not in _PASSING | _ABSENT:
                        raise
            if len(found) < len(places):  # a client may go on asking with a leader's epoch that is over
                self._admin = AdminClient(connection(self._broker), logger=UNHEARD)
            return found

        return explaining(self._broker, work)

    def _committed(self, groups: Mapping[str, list[Place]]) -> dict[str, dict[Place, int]]:
        asked = {
            group: self._kafka.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in places])],
                request_timeout=self._timeout,
            )[group]
            for group, places in groups.items()
            if places
        }
        found: dict[str, dict[Place, int]] = {}
        for group, future in asked.items():
            try:
                told = future.result(self._timeout).topic_partitions
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    continue
                raise
            found[group] = {
                (one.topic, one.partition): one.offset for one in told if one.error is None and one.offset >= 0
            }
        return found
