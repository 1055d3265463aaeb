"""RabbitMQ in a fair order, through pika's blocking connection: what a consumer holds is taken by tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sojourn.client.adapters.wrapping import TENANT, as_text
from sojourn.client.fair_consumer import FairConsumer

#: How long the connection is listened to before what came is handed on (seconds).
LISTEN_SECONDS = 0.05


class Delivered(NamedTuple):
    """One delivery, as pika has it."""

    method: Any
    properties: Any
    body: bytes


def tenant_of(message: Delivered) -> str:
    """The header ``tenant``."""
    return as_text((message.properties.headers or {}).get(TENANT)) or "unknown"


class FairPika(FairConsumer[Delivered]):
    """Handles a queue's messages by start-time fair queueing over tenants, and acknowledges them.

    ``channel`` is of a ``BlockingConnection``, which :meth:`run` alone uses from then on: it answers heartbeats however
    long a ``handle`` takes. ``buffer`` messages are unacknowledged at most (``basic_qos``). A message whose ``handle``
    raised is told to ``failed``, which may publish it elsewhere from a connection of its own, and is acknowledged then;
    without ``failed`` it is requeued. What a consumer held that died the broker gives to others. Where the connection
    is lost, :meth:`run` raises. ``options`` are :class:`sojourn.FairConsumer`'s.
    """

    def __init__(
        self,
        channel: Any,
        queue: str,
        handle: Callable[[Delivered], object],
        *,
        buffer: int = 1000,
        tenant_of: Callable[[Delivered], str] = tenant_of,
        failed: Callable[[Delivered, Exception], object] | None = None,
        **options: Any,
    ) -> None:
        self._channel, self._queue, self._work_on, self._told = channel, queue, handle, failed
        self._most, self._came = buffer, list[Delivered]()
        self._lost: Exception | None = None
        # Room for one more than ever comes: the connection is always listened to.
        super().__init__(
            self._listen,
            self._finish,
            tenant_of,
            buffer=buffer + 1,
            release=self._requeue,
            failed=self._gave_up,
            **options,
        )

    def run(self) -> None:
        """Handle until :meth:`stop`; raises what pika raised where the connection is lost."""
        self._channel.basic_qos(prefetch_count=self._most)
        tag = self._channel.basic_consume(
            self._queue, lambda _, method, properties, body: self._came.append(Delivered(method, properties, body))
        )
        super().run()
        if self._lost is not None:
            raise self._lost
        self._channel.basic_cancel(tag)
        self._channel.connection.process_data_events(time_limit=0)  # what workers had to say last
        for message in self._came:
            self._requeue(message)

    def _listen(self, most: int) -> list[Delivered]:
        try:
            self._channel.connection.process_data_events(time_limit=LISTEN_SECONDS)
        except Exception as error:
            if self._channel.is_open:
                raise
            self._lost = error
            self.stop()
            return []
        found, self._came[:] = self._came[:most], self._came[most:]
        return found

    def _finish(self, message: Delivered) -> None:
        self._work_on(message)
        self._say(lambda: self._channel.basic_ack(message.method.delivery_tag))

    def _gave_up(self, message: Delivered, error: Exception) -> None:
        if self._told is None:
            self._say(lambda: self._requeue(message))
            return
        self._told(message, error)
        self._say(lambda: self._channel.basic_ack(message.method.delivery_tag))

    def _say(self, word: Callable[[], object]) -> None:
        """From a worker's thread: the connection belongs to another."""
        self._channel.connection.add_callback_threadsafe(lambda: word() if self._channel.is_open else None)

    def _requeue(self, message: Delivered) -> None:
        if self._channel.is_open:
            self._channel.basic_nack(message.method.delivery_tag, requeue=True)
