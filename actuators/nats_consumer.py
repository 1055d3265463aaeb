"""What a NATS consumer of one tenant can be told: to pause until the lease ends, or to have less in flight.

Both slow down who *reads* a tenant's messages: they wait in the stream, nothing is refused or lost. They need a
consumer for each tenant (``filter_subject``), or they would slow everybody. Pauses need nats-server 2.11.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from actuators.base import ActuatorSettings, Demand, Refused, filled, refuse_other
from actuators.nats_kv import talking
from brokers.errors import CredentialsRefused
from brokers.nats.settings import NatsServer
from lake.errors import SojournError


class NatsConsumerSettings(ActuatorSettings, NatsServer):
    """Which consumer is a tenant's; ``{queue}`` and ``{tenant}`` are replaced."""

    stream: str = Field(default="{queue}", min_length=1, description="the stream")
    consumer: str = Field(min_length=1, description="the durable consumer that reads this tenant's messages alone")

    @field_validator("consumer")
    @classmethod
    def _of_one_tenant(cls, consumer: str) -> str:
        if "{tenant}" not in consumer:
            raise ValueError("a consumer needs {tenant} in its name: one that all tenants share would slow everybody")
        return consumer


class NatsPauseSettings(NatsConsumerSettings):
    """Pauses it: the tenant's messages wait until the limit is released, whatever its rate."""

    kind: Literal["nats_pause"] = "nats_pause"


class NatsInFlightSettings(NatsConsumerSettings):
    """Bounds what it has in flight: rate × ``service_seconds`` (Little's law), at least one."""

    kind: Literal["nats_max_ack_pending"] = "nats_max_ack_pending"
    service_seconds: float = Field(gt=0, le=86_400, description="how long a message is worked on")


class _Consumer:
    """One consumer's configuration, read and updated."""

    def __init__(self, settings: NatsConsumerSettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """``stream/consumer``."""
        names = [filled(part, demand) for part in (self._settings.stream, self._settings.consumer)]
        for name in names:
            if not name or set(name) & set(" .*>/\\\t\r\n"):
                raise Refused(f"{name!r} cannot be the name of a stream or consumer")
        return "/".join(names)

    def _config(self, place: str) -> dict[str, Any]:
        stream, consumer = place.split("/")
        told = self._asked(f"CONSUMER.INFO.{stream}.{consumer}")
        return dict(told["config"])

    def _asked(self, subject: str, body: Any = None) -> dict[str, Any]:
        from brokers.nats.client import NO_CONSUMER, NO_STREAM, ApiError

        async def talk(client: Any) -> dict[str, Any]:
            found: dict[str, Any] = await client.api(subject, body)
            return found

        try:
            return dict(talking(self._settings, talk))
        except ApiError as error:
            if error.code in (NO_CONSUMER, NO_STREAM) or 400 <= error.code < 500:
                raise Refused(str(error)) from None
            raise
        except CredentialsRefused as error:
            raise Refused(str(error)) from None


class NatsPause(_Consumer):
    """Pauses a consumer; the server lets it go on when the lease is over."""

    ends_by_itself: ClassVar[bool] = True
    slows_consumers: ClassVar[bool] = True

    def value(self, demand: Demand) -> str:
        """Until when, in whole seconds."""
        return _written(demand.valid_until)

    def read(self, place: str) -> str | None:
        """Until when it pauses; None where it does not, or no longer."""
        told = self._config(place).get("pause_until")
        if told is None:
            return None
        try:
            until = datetime.fromisoformat(told.replace("Z", "+00:00"))
        except (ValueError, AttributeError):
            raise SojournError(f"{place} pauses until {told!r}, which is no time") from None
        return _written(until) if until > datetime.now(UTC) else None

    def check(self, before: str | None, value: str) -> None:
        """A consumer that pauses already was paused by somebody else."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Pause it until then, or let it go on."""
        stream, consumer = place.split("/")
        self._asked(f"CONSUMER.PAUSE.{stream}.{consumer}", {} if value is None else {"pause_until": value})


class NatsInFlight(_Consumer):
    """Bounds what a consumer has in flight."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = True

    def __init__(self, settings: NatsInFlightSettings) -> None:
        super().__init__(settings)
        self._service = settings.service_seconds

    def value(self, demand: Demand) -> str:
        """How many messages at once."""
        return str(max(1, math.floor(demand.rate if demand.in_hand else demand.rate * self._service)))

    def read(self, place: str) -> str | None:
        """The bound."""
        return str(int(self._config(place)["max_ack_pending"]))

    def check(self, before: str | None, value: str) -> None:
        """A limit never loosens the bound that the consumer has."""
        if before is not None and 0 < int(before) <= int(value):
            raise Refused(f"it has a bound of {before} already, {value} is none beside it")

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Update the consumer, all else as it is."""
        stream, consumer = place.split("/")
        config = self._config(place)
        config["max_ack_pending"] = int(value or -1)
        body = {"stream_name": stream, "config": config, "action": "update"}
        self._asked(f"CONSUMER.CREATE.{stream}.{consumer}", body)


def _written(instant: datetime) -> str:
    whole = instant.astimezone(UTC).replace(microsecond=0)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")
