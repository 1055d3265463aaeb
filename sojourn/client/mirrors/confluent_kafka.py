"""A compacted topic of Kafka, as the actuator ``kafka_topic`` writes it: needs ``confluent-kafka``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from sojourn.client.mirrors.base import LOOK_SECONDS, TIMEOUT_SECONDS, Connected
from sojourn.client.poller import Answer, Unreachable
from sojourn.client.wire import MalformedAnswer, Scope, Update, WireLimit, limit_of

#: Records that are taken at once.
_PAGE = 1000
#: Who has not looked for so long cannot tell when what he finds was said (seconds).
_LONG = 4 * LOOK_SECONDS


@dataclass(frozen=True)
class KafkaMirror:
    """The limits in ``topic``; ``options`` are those of ``confluent_kafka.Consumer``, as ``security.protocol``.

    A lease is as long as it was when it was written, and counts from when the record came. What stood there before is
    as old as this machine's clock has it: Kafka tells no time of its own.
    """

    bootstrap: str
    topic: str = "sojourn-limits"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, url: str) -> KafkaMirror:
        """Of ``kafka://host:9092,other:9092``, or ``kafka://host:9092/topic``."""
        parts = urlsplit(url)
        if not parts.netloc:
            raise ValueError(f"{url!r} names no Kafka broker: kafka://host:9092/topic")
        topic = parts.path.strip("/")
        return cls(parts.netloc, topic) if topic else cls(parts.netloc)

    def source(self, clock: Callable[[], float]) -> KafkaSource:
        """See :class:`sojourn.client.mirrors.base.Mirror`. ImportError without the library."""
        import confluent_kafka  # noqa: F401 – whoever lacks it is to hear of it at once

        return KafkaSource(self, clock)


class KafkaSource(Connected):
    """Reads every partition from its beginning, and then what comes."""

    def __init__(self, mirror: KafkaMirror, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._mirror = mirror
        self._consumer: Any = None
        self._looked_at = 0.0

    def _look(self) -> Answer:
        import confluent_kafka

        try:
            if self._consumer is None:
                return self._begin()
            asked_at = self._clock()
            fresh = asked_at - self._looked_at <= _LONG
            records = self._consumer.consume(_PAGE, LOOK_SECONDS)
            limits, lifted = self._read(records, fresh)
        except confluent_kafka.KafkaException as error:
            raise Unreachable(str(error)) from error
        self._looked_at = self._clock()
        update = Update(None, whole=False, limits=limits, lifted=lifted) if limits or lifted else None
        return Answer(update, 0.0, asked_at)

    def _begin(self) -> Answer:
        import confluent_kafka

        asked_at, topic = self._clock(), self._mirror.topic
        told: list[str] = []
        own = {
            "bootstrap.servers": self._mirror.bootstrap,
            "group.id": "sojourn-limits",  # asked for by the library; nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "error_cb": lambda error: told.append(str(error)),
            "log_level": 0,
        }
        consumer = self._consumer = confluent_kafka.Consumer(own | dict(self._mirror.options))
        found = consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic]
        if found.error is not None:
            raise Unreachable(f"topic {topic}: {found.error}")
        ends, places = {}, []
        for number in found.partitions:
            place = confluent_kafka.TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(place, TIMEOUT_SECONDS)
            places.append(confluent_kafka.TopicPartition(topic, number, low))
            if high > low:
                ends[number] = high
        consumer.assign(places)
        newest: dict[bytes | None, Any] = {}
        deadline = self._clock() + TIMEOUT_SECONDS
        while ends:
            records = consumer.consume(_PAGE, 0.1)
            for record in records:
                if record.error() is None:
                    newest[record.key()] = record
            if records:
                deadline = self._clock() + TIMEOUT_SECONDS
            elif self._clock() > deadline:
                raise Unreachable(told[-1] if told else f"topic {topic} is not told to its end")
            # By the position, not the last record's number: what was compacted away, or aborted, never comes.
            for place in consumer.position([confluent_kafka.TopicPartition(topic, number) for number in ends]):
                if place.offset >= ends[place.partition]:
                    del ends[place.partition]
        limits, _ = self._read(list(newest.values()), fresh=False)
        self._looked_at = self._clock()
        return Answer(Update(None, whole=True, limits=limits), 0.0, asked_at)

    def _read(self, records: list[Any], fresh: bool) -> tuple[list[WireLimit], list[Scope]]:
        """What ``records`` say, the last of a key alone; what makes no sense, or is over, limits nobody."""
        limits: dict[Scope, WireLimit] = {}
        lifted: list[Scope] = []
        for record in records:
            if record.error() is not None or record.key() is None:
                continue
            try:
                broker, queue, tenant = (str(part) for part in json.loads(record.key()))
            except (ValueError, TypeError, RecursionError):
                continue
            scope = (broker, queue, tenant)
            limits.pop(scope, None)
            lifted.append(scope)
            try:
                entry = json.loads(record.value() or b"")
                until, written_at = (
                    datetime.fromisoformat(entry["valid_until"]).timestamp(),
                    record.timestamp()[1] / 1e3,
                )
                lease = until - written_at if written_at > 0 else 0.0
                limits[scope] = limit_of(entry, lease if fresh else min(lease, until - time.time()))
            except (MalformedAnswer, ValueError, KeyError, TypeError, RecursionError):
                continue
        return list(limits.values()), lifted

    def _disconnect(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
