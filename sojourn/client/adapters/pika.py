"""RabbitMQ through pika: ``channel = RecordingChannel(connection.channel(), recorder)``, and use it as before.

``basic_publish`` tells enqueued (and gives the message an id and its enqueue time, where it has none), a delivery tells
received, ``basic_ack`` completed, ``basic_nack`` and ``basic_reject`` failed, or dead-lettered without ``requeue``. The
attempt is ``x-delivery-count`` + 1 on quorum queues; elsewhere a redelivery counts as the second. The tenant is the
header ``tenant``.
"""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sojourn.client.adapters.wrapping import TENANT, Deliveries, Delivery, Wrapped, as_text
from sojourn.client.events import Instant
from sojourn.client.recorder import Recorder

BROKER = "rabbitmq"
#: Unix nanoseconds: AMQP's own ``timestamp`` knows whole seconds alone.
ENQUEUED_AT = "sojourn.enqueued_at"


def queue_of_default_exchange(exchange: str, routing_key: str) -> Iterable[str]:
    """The queues of a message, where the channel can tell: the default exchange routes to the queue of that name."""
    return () if exchange else (routing_key,)


class RecordingChannel(Wrapped):
    """A pika channel that records.

    ``queues_of`` tells the queues that a message to (exchange, routing key) reaches; only messages to the default
    exchange are told as enqueued without it. ``tenant_header`` names the tenant.
    """

    def __init__(
        self,
        channel: Any,
        recorder: Recorder,
        *,
        queues_of: Callable[[str, str], Iterable[str]] = queue_of_default_exchange,
        tenant_header: str = TENANT,
    ) -> None:
        super().__init__(channel, recorder)
        self._queues_of, self._tenant_header = queues_of, tenant_header
        self._deliveries = Deliveries(recorder)

    def basic_publish(
        self, exchange: str, routing_key: str, body: Any, properties: Any = None, mandatory: bool = False
    ) -> Any:
        """As pika's; tells enqueued once it returned, and counts how long that took: with publisher confirms, until the
        broker has the message."""
        if properties is None:
            import pika

            properties = pika.BasicProperties()
        properties = copy.copy(properties)  # the application may publish others with the same
        if properties.message_id is None:
            properties.message_id = str(uuid.uuid4())
        now = time.time_ns()
        headers = dict(properties.headers or {})
        properties.headers = headers | {ENQUEUED_AT: now}
        if properties.timestamp is None:
            properties.timestamp = now // 10**9
        failed, started = True, time.monotonic()
        try:
            answer = self._inner.basic_publish(exchange, routing_key, body, properties, mandatory)
            failed = False
        finally:
            seconds, queues = time.monotonic() - started, list(self._queues_of(exchange, routing_key))
            for queue in queues:
                self._recorder.published(queue, seconds=seconds, failed=failed, broker=BROKER)
        for queue in queues:
            self._recorder.enqueued(
                queue,
                properties.message_id,
                broker=BROKER,
                tenant=as_text(headers.get(self._tenant_header)),
                enqueued_at=now,
                priority=properties.priority,
            )
        return answer

    def basic_consume(self, queue: str, on_message_callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As pika's; the callback gets this channel, so that its acknowledgements are told."""
        auto_ack = bool(args[0] if args else kwargs.get("auto_ack", False))

        def receive(_: Any, method: Any, properties: Any, body: Any) -> None:
            self._received(queue, method, properties)
            try:
                on_message_callback(self, method, properties, body)
            except BaseException as error:
                if auto_ack:
                    self._deliveries.ended(method.delivery_tag, "failed", type(error).__name__)
                raise
            if auto_ack:
                self._deliveries.ended(method.delivery_tag, "completed")

        return self._inner.basic_consume(queue, receive, *args, **kwargs)

    def consume(self, queue: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """As pika's blocking channel's."""
        auto_ack = bool(args[0] if args else kwargs.get("auto_ack", False))
        for method, properties, body in self._inner.consume(queue, *args, **kwargs):
            if method is not None:
                self._received(queue, method, properties)
            yield method, properties, body
            if method is not None and auto_ack:
                self._deliveries.ended(method.delivery_tag, "completed")

    def basic_get(self, queue: str, auto_ack: bool = False) -> Any:
        """As pika's blocking channel's; counts the poll."""
        with self._recorder.poll(queue, broker=BROKER) as poll:
            method, properties, body = self._inner.basic_get(queue, auto_ack)
            poll.messages = int(method is not None)
        if method is not None:
            self._received(queue, method, properties)
            if auto_ack:
                self._deliveries.ended(method.delivery_tag, "completed")
        return method, properties, body

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> Any:
        """As pika's; tells completed."""
        answer = self._inner.basic_ack(delivery_tag, multiple)
        self._ended(delivery_tag, multiple, "completed", None)
        return answer

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> Any:
        """As pika's; tells failed, or dead-lettered where it shall not be requeued."""
        answer = self._inner.basic_nack(delivery_tag, multiple, requeue)
        self._ended(delivery_tag, multiple, "failed" if requeue else "dead_lettered", "nack")
        return answer

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> Any:
        """As pika's; tells failed, or dead-lettered where it shall not be requeued."""
        answer = self._inner.basic_reject(delivery_tag, requeue)
        self._ended(delivery_tag, False, "failed" if requeue else "dead_lettered", "reject")
        return answer

    def _received(self, queue: str, method: Any, properties: Any) -> None:
        headers = properties.headers or {}
        message_id = properties.message_id
        if not message_id:
            return  # a message without an id cannot be followed
        delivery = Delivery(
            BROKER,
            queue,
            message_id,
            None,
            as_text(headers.get(self._tenant_header)),
            attempt_of(method.redelivered, headers),
            enqueued_at_of(properties.timestamp, headers),
            time.monotonic(),
        )
        self._deliveries.received(method.delivery_tag, delivery)

    def _ended(self, tag: int, multiple: bool, event_type: str, reason: str | None) -> None:
        # Tag 0 with ``multiple`` means all that are open.
        keys = self._deliveries.keys(lambda key: tag == 0 or key <= tag) if multiple else [tag]
        for key in keys:
            self._deliveries.ended(key, event_type, reason)


def attempt_of(redelivered: bool, headers: dict[str, Any]) -> int:
    """The attempt that a delivery is; of a redelivery that nobody counted, the least that it can be."""
    count = headers.get("x-delivery-count")
    if isinstance(count, int) and count > 0:
        return count + 1
    return 2 if redelivered else 1


def enqueued_at_of(timestamp: int | None, headers: dict[str, Any]) -> Instant | None:
    """When a message was published: ours to the nanosecond, else AMQP's ``timestamp`` in seconds."""
    ours = headers.get(ENQUEUED_AT)
    return ours if isinstance(ours, int) else timestamp
