"""Kafka through confluent-kafka: wrap the producer and the consumer, and use them as before.

``producer = RecordingProducer(Producer(config), recorder)``: a delivery report tells enqueued.
``consumer = RecordingConsumer(Consumer(config), recorder, group="billing")``: ``poll`` and ``consume`` tell received,
``commit`` and ``store_offsets`` completed. The tenant is the header ``tenant``, the id topic.partition.offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sojourn.client.adapters.wrapping import TENANT, Deliveries, Delivery, Wrapped, as_text
from sojourn.client.recorder import Recorder

BROKER = "kafka"
#: Where ``produce(topic, value, key, partition, on_delivery, …)`` takes its callback, after the topic.
_CALLBACK_POSITION = 3


class RecordingProducer(Wrapped):
    """A confluent-kafka Producer that tells enqueued of what the broker has acknowledged, and counts how long that
    took: from ``produce`` to the delivery report, which the application's own polling hands on."""

    def __init__(self, producer: Any, recorder: Recorder, *, tenant_header: str = TENANT) -> None:
        super().__init__(producer, recorder)
        self._tenant_header = tenant_header

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """As confluent-kafka's; the application's own ``on_delivery`` is called as before."""
        positional = list(args)
        callback: Callable[[Any, Any], Any] | None = kwargs.pop("on_delivery", None) or kwargs.pop("callback", None)
        if len(positional) > _CALLBACK_POSITION:
            callback, positional[_CALLBACK_POSITION] = positional[_CALLBACK_POSITION], None
        headers = positional[5] if len(positional) > 5 else kwargs.get("headers")
        tenant = header(headers, self._tenant_header)
        started = time.monotonic()

        def delivered(error: Any, message: Any) -> None:
            seconds = time.monotonic() - started
            self._recorder.published(topic, seconds=seconds, failed=error is not None, broker=BROKER)
            if error is None:
                self._recorder.enqueued(
                    topic, message_id(message), broker=BROKER, tenant=tenant, enqueued_at=timestamp(message)
                )
            if callback is not None:
                callback(error, message)

        if len(positional) > _CALLBACK_POSITION:
            positional[_CALLBACK_POSITION] = delivered
        else:
            kwargs["on_delivery"] = delivered
        try:
            self._inner.produce(topic, *positional, **kwargs)
        except BufferError:  # the broker takes less than is produced: no report will come of this one
            self._recorder.published(topic, seconds=0.0, failed=True, broker=BROKER)
            raise

    def __len__(self) -> int:
        return len(self._inner)


class RecordingConsumer(Wrapped):
    """A confluent-kafka Consumer that records.

    ``group`` is its ``group.id``. With ``auto_commit`` (``enable.auto.commit``, Kafka's default) what one poll brought
    is told as completed when the application polls again: that is what Kafka takes it to mean.
    """

    def __init__(
        self,
        consumer: Any,
        recorder: Recorder,
        *,
        group: str,
        auto_commit: bool = False,
        tenant_header: str = TENANT,
    ) -> None:
        super().__init__(consumer, recorder)
        self._group, self._auto_commit, self._tenant_header = group, auto_commit, tenant_header
        self._deliveries = Deliveries(recorder)
        self._topics: tuple[str, ...] = ()
        self._last: dict[tuple[str, int], int] = {}

    def subscribe(self, topics: Iterable[str], *args: Any, **kwargs: Any) -> None:
        """As confluent-kafka's."""
        self._topics = tuple(topics)
        self._inner.subscribe(list(self._topics), *args, **kwargs)

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent-kafka's; tells received."""
        started = self._before()
        message = self._inner.poll(*args, **kwargs)
        self._after([] if message is None else [message], started)
        return message

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """As confluent-kafka's; tells received of each."""
        started = self._before()
        messages = self._inner.consume(*args, **kwargs)
        self._after(messages, started)
        return messages

    def commit(self, message: Any = None, offsets: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As confluent-kafka's; tells completed of all that lies before what is committed."""
        answer = self._inner.commit(*args, **_given(message, offsets), **kwargs)
        self._completed(message, offsets)
        return answer

    def store_offsets(self, message: Any = None, offsets: Any = None) -> Any:
        """As confluent-kafka's; tells completed of all that lies before what will be committed."""
        answer = self._inner.store_offsets(**_given(message, offsets))
        self._completed(message, offsets)
        return answer

    def close(self) -> None:
        """As confluent-kafka's; with automatic commits, it commits."""
        self._inner.close()
        if self._auto_commit:
            self._completed(None, None)

    def _before(self) -> float:
        if self._auto_commit:
            self._completed(None, None)
        return time.monotonic()

    def _after(self, messages: Iterable[Any], started: float) -> None:
        now = time.monotonic()
        counts: dict[str, int] = {}
        for message in messages:
            if message.error() is not None:
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            counts[topic] = counts.get(topic, 0) + 1
            if offset <= self._last.get((topic, partition), -1):
                self._forget(topic, partition, offset)  # sought back, or the partition went away and came back
            self._last[topic, partition] = offset
            delivery = Delivery(
                BROKER,
                topic,
                message_id(message),
                self._group,
                header(message.headers(), self._tenant_header),
                None,
                timestamp(message),
                now,
            )
            self._deliveries.received((topic, partition, offset), delivery)
        for topic in counts or self._topics:
            self._recorder.polled(
                topic, messages=counts.get(topic, 0), waited=now - started, subscriber=self._group, broker=BROKER
            )

    def _forget(self, topic: str, partition: int, offset: int) -> None:
        self._deliveries.forget(lambda key: key[:2] == (topic, partition) and key[2] >= offset)

    def _completed(self, message: Any, offsets: Any) -> None:
        if message is not None:
            ends = {(message.topic(), message.partition()): message.offset() + 1}
        elif offsets is not None:
            ends = {(entry.topic, entry.partition): entry.offset for entry in offsets}
        else:
            ends = {place: last + 1 for place, last in self._last.items()}
        for key in self._deliveries.keys(lambda key: key[2] < ends.get(key[:2], -1)):
            self._deliveries.ended(key, "completed")


def message_id(message: Any) -> str:
    """A record's name within its cluster."""
    return f"{message.topic()}.{message.partition()}.{message.offset()}"


def timestamp(message: Any) -> float | None:
    """A record's timestamp in seconds; None where it has none."""
    kind, milliseconds = message.timestamp()
    return milliseconds / 1000 if kind and milliseconds > 0 else None


def header(headers: Any, name: str) -> str | None:
    """The value of a header, from a list of pairs or a mapping; the last one counts, as in Kafka."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    found = [value for key, value in pairs if key == name]
    return as_text(found[-1]) if found else None


def _given(message: Any, offsets: Any) -> dict[str, Any]:
    # confluent-kafka tells an argument that is None from one that is not given.
    given = {"message": message, "offsets": offsets}
    return {name: value for name, value in given.items() if value is not None}
