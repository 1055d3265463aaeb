"""Reading a cluster by librdkafka's clients, where our own requests cannot be spoken: other mechanisms, older brokers.

The same readings, some ten times slower: librdkafka makes an object and a future for each partition. What it does not
tell is left out: topics' identities, so that one that is recreated is noticed by its offsets alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from brokers.kafka.wire.cluster import Metadata, Node, Topic
from collectors.kafka.cluster import METADATA_SECONDS, Cluster
from collectors.kafka.connection import UNHEARD, connection, explained, explaining
from collectors.kafka.errors import MOVED, NO_SUCH_GROUP, words
from collectors.kafka.offset_timestamps import OffsetTimestamps, Search
from collectors.kafka.reader import MEMBERS_SECONDS, NO_LEADER, ClusterReader
from collectors.kafka.reading import GroupReading, Place, wanted
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.wire.groups import Committed, Listed, Members
from collectors.kafka.wire.offsets import EARLIEST
from collectors.kafka.wire.records import Stamp

_WHO = "the sampler"
_UNANSWERED = 7  # Kafka's REQUEST_TIMED_OUT
_STATES = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}


class VendorCluster(Cluster):
    """The cluster as librdkafka's admin client sees it."""

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__(broker)
        self._client: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The client; open it first."""
        assert self._client is not None, "it is not open"
        return self._client

    def ask(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns; librdkafka's errors as ours."""
        return explaining(self._broker, work, _WHO)

    def open(self) -> None:
        """Connect, and learn of topics and leaders."""
        self.close()
        self.renew()
        self.forget_leaders()
        self.refresh()

    def renew(self) -> None:
        """Take another client: one remembers a coordinator that died, and asks it again and again."""
        self._client = self.ask(lambda: AdminClient(connection(self._broker), logger=UNHEARD))

    def close(self) -> None:
        """Disconnect."""
        self._client = None

    def refresh(self) -> None:
        """Learn topics and leaders anew if what is known is old."""
        if time.monotonic() - self._known_at < METADATA_SECONDS:
            return
        told = self.ask(lambda: self.admin.list_topics(timeout=self._broker.timeout_seconds))
        nodes = {number: Node(one.host, one.port) for number, one in told.brokers.items()}
        topics = {
            name: Topic(b"", False, {number: part.leader for number, part in sorted(one.partitions.items())})
            for name, one in told.topics.items()
        }
        self.metadata, self._known_at = Metadata(nodes, topics), time.monotonic()


class VendorReader(ClusterReader):
    """A :class:`ClusterReader` that asks librdkafka."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._vendor = VendorCluster(broker)
        super().__init__(broker, self._vendor)
        self._offset_timestamps = VendorOffsetTimestamps(self._vendor, broker)

    def close(self) -> None:
        """Disconnect."""
        self._offset_timestamps.close()
        super().close()

    def _groups(self, partitions: Mapping[str, tuple[int, ...]]) -> tuple[GroupReading, ...]:
        listed = self._listed()
        self._describe(listed)
        found = []
        for name, answer in self._committed(list(listed)).items():
            if answer.error != NO_SUCH_GROUP:
                found.append(self._group(listed[name], answer, partitions))
        for name in self._topics_of.keys() - listed.keys() if self._unlisted else ():
            before = self._topics_of[name]
            found.append(GroupReading(name, "", self._unlisted, before, failed=self._unlisted))
        self._topics_of = {group.name: group.committed for group in found}
        return tuple(found)

    def _listed(self) -> dict[str, Listed]:
        timeout = self._broker.timeout_seconds
        told = self._vendor.ask(
            lambda: self._vendor.admin.list_consumer_groups(request_timeout=timeout).result(2 * timeout)
        )
        # What it says of its own errors notwithstanding, they are no exceptions.
        errors = [one if isinstance(one, KafkaException) else KafkaException(one) for one in told.errors]
        if errors and not told.valid:
            raise explained(errors[0], self._broker, _WHO)
        self._unlisted = f"some broker did not list its groups: {_words(errors[0])}" if errors else ""
        groups = {
            one.group_id: Listed(one.group_id, "consumer", _STATES.get(one.state, ""), "")
            for one in told.valid
            if wanted(one.group_id, self._broker.groups)
        }
        self._members = {name: was for name, was in self._members.items() if name in groups}
        self._complaints &= groups.keys()
        return dict(sorted(groups.items()))

    def _describe(self, listed: Mapping[str, Listed]) -> None:
        now, timeout = time.monotonic(), self._broker.timeout_seconds
        due = []
        for name, group in listed.items():
            known = self._members.get(name)
            if known is None or known[1] != group.state or now - known[0] >= MEMBERS_SECONDS:
                due.append(name)
        if not due:
            return
        asked = self._vendor.ask(lambda: self._vendor.admin.describe_consumer_groups(due, request_timeout=timeout))
        for name, future in asked.items():
            try:
                members = future.result(2 * timeout).members
            except KafkaException as error:
                said: Members | str = _words(error)
            except TimeoutError:
                said = words(7)
            else:
                by_topic: dict[str, int] = defaultdict(int)
                for member in members:
                    assigned = member.assignment.topic_partitions if member.assignment else ()
                    for topic in {place.topic for place in assigned}:
                        by_topic[topic] += 1
                said = Members(len(members), dict(by_topic))
            self._members[name] = now, listed[name].state, said

    def _committed(self, names: list[str]) -> dict[str, Committed]:
        timeout = self._broker.timeout_seconds

        def ask(name: str) -> Any:
            wanted = [ConsumerGroupTopicPartitions(name)]
            return self._vendor.admin.list_consumer_group_offsets(wanted, request_timeout=timeout)[name]

        asked = self._vendor.ask(lambda: {name: ask(name) for name in names})
        found = {}
        for name, future in asked.items():
            try:
                told = future.result(2 * timeout).topic_partitions
            except KafkaException as error:
                found[name] = Committed(_code(error) if _code(error) > 0 else _UNANSWERED)
            except TimeoutError:
                found[name] = Committed(_UNANSWERED)
            else:
                offsets: dict[str, dict[int, int]] = defaultdict(dict)
                for one in told:
                    offsets[one.topic][one.partition] = max(-1, one.offset)
                errors = {(one.topic, one.partition): one.error.code() for one in told if one.error is not None}
                found[name] = Committed(0, offsets, errors)
        if any(committed.error == _UNANSWERED for committed in found.values()):
            self._vendor.renew()
        return found

    def _offsets(self, places: Iterable[Place], which: int, *, stable: bool = False) -> dict[Place, int | str]:
        found: dict[Place, int | str] = {}
        asked = {}
        spec = OffsetSpec.earliest() if which == EARLIEST else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for place in places:
            if self._leader(*place) < 0:
                found[place] = words(NO_LEADER)
            else:
                asked[TopicPartition(*place)] = spec
        if not asked:
            return found
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        timeout = self._broker.timeout_seconds
        futures = self._vendor.ask(
            lambda: self._vendor.admin.list_offsets(asked, isolation_level=level, request_timeout=timeout)
        )
        for at, future in futures.items():
            try:
                found[at.topic, at.partition] = int(future.result(2 * timeout).offset)
            except KafkaException as error:
                found[at.topic, at.partition] = _words(error)
                if _code(error) in MOVED:
                    self.cluster.forget_leaders()
            except TimeoutError:
                found[at.topic, at.partition] = words(7)
        return found


class VendorOffsetTimestamps(OffsetTimestamps):
    """Reads heads by a consumer in no group, which commits nothing."""

    def __init__(self, cluster: VendorCluster, broker: KafkaBroker) -> None:
        super().__init__(cluster, broker.head_bytes)
        self._broker = broker
        self._consumer: Consumer | None = None

    def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            own = {
                "group.id": "sojourn-sampler",  # a name that librdkafka wants: never joined, never committed to
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.message.max.bytes": 4096,
                "queued.min.messages": 1,
            }
            self._consumer = Consumer(connection(self._broker) | own, logger=UNHEARD)
        return self._consumer

    def _round(
        self, searches: list[Search], leader: Callable[[str, int], int], starts: dict[Place, int | str]
    ) -> list[Search]:
        layers: list[dict[Place, Search]] = []
        for search in searches:  # a consumer is at one place of a partition at a time
            place = search.head.topic, search.head.partition
            layer = next((layer for layer in layers if place not in layer), None)
            if layer is None:
                layers.append(layer := {})
            layer[place] = search
        for layer in layers:
            explaining(self._broker, lambda layer=layer: self._layer(layer), _WHO)  # type: ignore[misc]
        return []

    def _layer(self, searches: dict[Place, Search]) -> None:
        consumer, left = self._open_consumer(), dict(searches)
        consumer.assign([TopicPartition(*place, search.at) for place, search in left.items()])
        deadline = time.monotonic() + self._broker.timeout_seconds
        try:
            while left and time.monotonic() < deadline:
                for message in consumer.consume(1000, timeout=0.2):
                    topic, partition, error = message.topic(), message.partition(), message.error()
                    if topic is None or partition is None or (topic, partition) not in left:
                        continue
                    if error is None:
                        self._take(left.pop((topic, partition)), message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        self._found[left.pop((topic, partition)).head] = None
                    elif not error.retriable():
                        self._found[left.pop((topic, partition)).head] = words(error.code())
        finally:
            with suppress(KafkaException):
                consumer.unassign()

    def _take(self, search: Search, message: Any) -> None:
        kind, time_ = message.timestamp()
        self._left -= max(search.room, len(message.value() or b"") + len(message.key() or b""))
        at = -1 if kind == TIMESTAMP_NOT_AVAILABLE else time_
        beyond = message.offset() >= search.end
        self._found[search.head] = None if beyond else Stamp(message.offset(), at, kind == TIMESTAMP_LOG_APPEND_TIME)


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())


def _words(error: KafkaException) -> str:
    """Why something is not told; librdkafka's own errors are negative."""
    return words(_code(error)) if _code(error) > 0 else str(error.args[0].str())
