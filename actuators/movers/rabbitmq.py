"""Moving messages between RabbitMQ queues, through one channel with confirms.

A queue is taken from at its head alone: what is not chosen is held until the batch is over, then put back where it was,
with ``redelivered`` set. Quorum queues count that as a delivery: there all that is at the head must be chosen.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Iterator, Literal  # noqa: UP035

from pydantic import Field

from actuators.base import Refused
from actuators.movers.base import TRACE, Choice, Message, Moved, MoverSettings, Trace
from brokers import tenants
from brokers.errors import ConnectionLost
from brokers.rabbitmq.amqp import parameters
from brokers.settings import ServerSettings
from lake.errors import SojournError, first_line


class RabbitMoverSettings(MoverSettings, ServerSettings):
    """Which server and virtual host; one aside is a durable queue, made where there is none."""

    default_port: ClassVar[int] = 5672
    kind: Literal["rabbitmq"] = "rabbitmq"
    url: str = Field(default="amqp://127.0.0.1:5672", description="amqp://host:port/vhost, with TLS amqps://")
    tenant: Annotated[tenants.TenantRules, tenants.only("header", "queue")] = Field(
        default=(tenants.parse("header:tenant"),), description="where a message names its tenant"
    )


class RabbitMover:
    """Takes, publishes with a confirm, then acknowledges."""

    def __init__(self, settings: RabbitMoverSettings) -> None:
        self._settings = settings

    def move(self, source: str, target: str, choose: Choice, most: int, *, skip: int = 0) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""
        with self._channel() as channel:
            channel.queue_declare(target, durable=True, passive=self._exists(target))
            return self._carried(channel, source, target, choose, most, skip)

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """See :class:`actuators.movers.base.Mover`; here what came meanwhile goes first, as queues keep one order."""
        with self._channel() as channel:
            return self._carried(channel, aside, home, choose, most, 0)

    def drop(self, source: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        with self._channel() as channel:
            return self._carried(channel, source, None, choose, most, 0).moved

    def count(self, queue: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`; queues are not looked into: every message counts."""
        return min(most, self.waiting(queue))

    def waiting(self, queue: str) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        if not self._exists(queue):
            return 0
        with self._channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def _exists(self, queue: str) -> bool:
        try:
            with self._channel() as channel:
                channel.queue_declare(queue, passive=True)
        except Refused:
            return False
        return True

    def _carried(self, channel: Any, source: str, target: str | None, choose: Choice, most: int, skip: int) -> Moved:
        import pika

        channel.confirm_delivery()
        moved = looked = 0
        while moved < most:
            method, properties, body = channel.basic_get(source, auto_ack=False)
            if method is None:
                break
            looked += 1
            headers = dict(properties.headers or {})
            trace = Trace.of(headers.get(TRACE))
            stamped = float(properties.timestamp) if properties.timestamp else None
            enqueued = stamped if trace is None else trace.enqueued_at
            message = Message(
                str(properties.message_id or ""),
                tenants.tenant_of(self._settings.tenant, tenants.Message(source, headers=headers)),
                enqueued,
                {name: str(value) for name, value in headers.items()},
            )
            if not choose(message):
                continue  # held: put back when the channel closes
            if skip:
                skip -= 1
                continue
            if target is not None:
                name = message.id or hashlib.sha256(body).hexdigest()[:16]
                mark = trace or Trace.now(f"{source}-{name}", source, source, enqueued, {})
                properties.headers = headers | {TRACE: mark.text()}
                properties.delivery_mode = properties.delivery_mode or 2
                try:
                    channel.basic_publish("", target, body, properties, mandatory=True)
                except (pika.exceptions.UnroutableError, pika.exceptions.NackError):
                    raise SojournError(f"queue {target} does not take what is moved there") from None
            channel.basic_ack(method.delivery_tag)
            moved += 1
        return Moved(moved, looked)

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        import pika
        from pika.adapters.utils.connection_workflow import AMQPConnectorException

        settings = self._settings
        connection = None
        try:
            connection = pika.BlockingConnection(parameters(settings, settings.name, settings.timeout, "sojourn mover"))
            yield connection.channel()
        except pika.exceptions.ChannelClosedByBroker as error:
            raise Refused(f"RabbitMQ {settings.name!r} refuses: {error.reply_text}") from None
        except (pika.exceptions.AMQPError, AMQPConnectorException, OSError) as error:
            why = first_line(error) or type(error).__name__
            raise ConnectionLost(f"RabbitMQ {settings.name!r} at {settings.url}: {why}") from None
        finally:
            if connection is not None and connection.is_open:
                connection.close()
