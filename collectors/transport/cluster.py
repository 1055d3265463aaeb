"""What the transport reads of Kafka and makes there: topics, their ends, and records from a place on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from brokers.errors import ConnectionLost, CredentialsRefused
from lake.errors import SojournError

_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: What a partition answers while its leader is being found; librdkafka does not call these retriable.
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_READY_SECONDS = 10.0

#: The positions topic is small and read whole at each start: compacted often.
POSITIONS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


def explained(error: KafkaException, bootstrap: str) -> SojournError:
    """``error`` as one of ours: CredentialsRefused, or ConnectionLost, after which all may be tried again."""
    reason = error.args[0]
    if isinstance(reason, KafkaError) and reason.code() in _REFUSED:
        return CredentialsRefused(
            f"Kafka at {bootstrap} refuses the transport: {reason.str()}", "fix user, password, mechanism or ACLs"
        )
    text = reason.str() if isinstance(reason, KafkaError) else str(reason)
    return ConnectionLost(f"Kafka at {bootstrap}, the transport, does not take or give records now: {text}")


class Cluster:
    """One Kafka cluster as the transport sees it. Its methods raise KafkaException; each ends within ``timeout``."""

    def __init__(self, config: Mapping[str, Any], timeout: float) -> None:
        self._config = dict(config)
        self._timeout = timeout
        self._admin = AdminClient(self._config)

    def renew(self) -> None:
        """Forget what the client knew: after a broker's restart it may go on asking with an epoch that is over."""
        self._admin = AdminClient(self._config)

    def ensure(self, topics: Mapping[str, Mapping[str, str]], partitions: Mapping[str, int], replication: int) -> None:
        """Make those of ``topics`` (name → configuration) that are absent, and wait until all can be written to."""
        there = self._admin.list_topics(timeout=self._timeout).topics
        absent = [name for name in topics if name not in there]
        if not absent:
            return
        wanted = [
            NewTopic(name, partitions[name], replication_factor=replication, config=dict(topics[name]))
            for name in absent
        ]
        for future in self._admin.create_topics(wanted, operation_timeout=self._timeout).values():
            try:
                future.result(self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker
                    raise
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            there = self._admin.list_topics(timeout=self._timeout).topics
            if all(name in there and _led(there[name]) for name in topics):
                return
            time.sleep(0.05)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "new topics have no leaders yet"))

    def identity(self, topic: str) -> tuple[str, list[int]]:
        """The topic's identifier, another one when it was recreated, and its partitions."""
        (future,) = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout).values()
        found = future.result(self._timeout)
        return str(found.topic_id), [one.id for one in found.partitions]

    def ends(self, topic: str, partitions: list[int], *, committed: bool = False) -> dict[int, int]:
        """Partition → the offset behind its last record, those of unfinished transactions included.

        ``committed``: the offset below which all is decided, where the first unfinished transaction begins.
        """
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for partition in partitions
        }
        deadline = time.monotonic() + self._timeout
        while True:
            futures = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=self._timeout)
            try:
                return {at.partition: int(future.result(self._timeout).offset) for at, future in futures.items()}
            except KafkaException as error:  # a topic that was just made, a leader that has just moved
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
            self.renew()

    def records(
        self, topic: str, start: Mapping[int, int], ends: Mapping[int, int], *, committed: bool = True
    ) -> Iterator[Any]:
        """The committed records of ``topic`` from ``start`` up to ``ends`` (partition → offset).

        Waits for transactions that are unfinished; KafkaException when they do not end within the timeout. Not so
        without ``committed``: then the records are those of unfinished and of aborted transactions, too.
        """
        left = {partition: end for partition, end in ends.items() if end > max(0, start.get(partition, 0))}
        if not left:
            return
        own = {
            "group.id": "sojourn-transport",  # never joined, never committed to
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
        consumer = Consumer(self._config | own)
        try:
            consumer.assign([TopicPartition(topic, one, start.get(one, OFFSET_BEGINNING)) for one in left])
            quiet_until = time.monotonic() + self._timeout
            while left:
                for message in consumer.consume(10_000, timeout=0.2):
                    partition, offset, error = message.partition(), message.offset(), message.error()
                    assert partition is not None and offset is not None
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        if error.fatal() or error.code() in _REFUSED:
                            raise KafkaException(error)
                        continue  # librdkafka repairs it, or the time is over
                    if partition in left and offset >= left[partition]:
                        del left[partition]
                    elif error is None:
                        quiet_until = time.monotonic() + self._timeout
                        yield message
                        if partition in left and offset + 1 >= left[partition]:
                            del left[partition]
                if left and time.monotonic() > quiet_until:
                    raise KafkaException(
                        KafkaError(
                            KafkaError._TIMED_OUT,
                            f"{topic} cannot be read to its end: Kafka is slow, or a transaction is open",
                        )
                    )
        finally:
            consumer.close()


def _led(topic: Any) -> bool:
    return topic.error is None and all(one.leader >= 0 for one in topic.partitions.values()) and bool(topic.partitions)
