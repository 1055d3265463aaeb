"""``kind = "rabbitmq"``: the messages of a queue that are ready, by a passive declaration over AMQP.

Source: AMQP 0-9-1, ``queue.declare-ok``: ``message-count`` are the messages that wait, without those that were
delivered and are not acknowledged. The management API would tell what it gathered some seconds ago.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar, Literal

from pydantic import Field

from alerts.control.depth.base import DepthSettings, Unknown
from brokers.errors import ConnectionLost
from brokers.rabbitmq.amqp import parameters
from brokers.settings import ServerSettings
from lake.errors import first_line


class RabbitDepthSettings(DepthSettings, ServerSettings):
    """Which node and virtual host. Needs the right to read the queues."""

    default_port: ClassVar[int] = 5672
    kind: Literal["rabbitmq"] = "rabbitmq"
    url: str = Field(default="amqp://127.0.0.1:5672", description="amqp://host:port/vhost, with TLS amqps://")


class RabbitDepth:
    """Asks through a connection of its own."""

    def __init__(self, settings: RabbitDepthSettings) -> None:
        self._settings = settings
        self._connection: Any = None
        self._channel: Any = None

    def open(self) -> None:
        """Connect."""
        import pika

        self.close()
        settings = self._settings
        try:
            given = parameters(settings, settings.name, settings.timeout, "sojourn glances")
            self._connection = pika.BlockingConnection(given)
            self._channel = self._connection.channel()
        except Exception as error:
            raise self._lost(error) from None

    def waiting(self, queue: str) -> float:
        """The messages that are ready. Unknown where nobody consumes them."""
        import pika

        if self._channel is None:
            raise ConnectionLost(f"RabbitMQ {self._settings.name!r} is not connected")
        try:
            if not self._channel.is_open:  # a question for a queue that is not there ends it
                self._channel = self._connection.channel()
            told = self._channel.queue_declare(queue, passive=True).method
        except pika.exceptions.ChannelClosedByBroker as error:
            raise Unknown(f"queue {queue!r}: {error.reply_text}") from None
        except Exception as error:
            raise self._lost(error) from None
        if not told.consumer_count:
            raise Unknown(f"queue {queue!r} has no consumer")
        return float(told.message_count)

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # it may be gone already
                connection.close()

    def _lost(self, error: Exception) -> ConnectionLost:
        why = first_line(error) or type(error).__name__
        return ConnectionLost(f"RabbitMQ {self._settings.name!r} at {self._settings.url}: {why}")
