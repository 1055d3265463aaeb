"""The kinds of brokers whose messages can be moved: adding one is a file and a line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from actuators.kinds import Kinds
from actuators.movers.base import Mover, MoverSettings

KINDS: Kinds[MoverSettings, Mover] = Kinds(
    {
        "nats": ("actuators.movers.nats", "NatsMoverSettings", "NatsMover"),
        "redis_stream": ("actuators.movers.redis", "RedisMoverSettings", "RedisStreamMover"),
        "redis_list": ("actuators.movers.redis", "RedisListSettings", "RedisListMover"),
        "sqs": ("actuators.movers.sqs", "SqsMoverSettings", "SqsMover"),
        "rabbitmq": ("actuators.movers.rabbitmq", "RabbitMoverSettings", "RabbitMover"),
    }
)

#: One mover in the settings, of whatever kind.
AnyMover = Annotated[SerializeAsAny[MoverSettings], BeforeValidator(KINDS.chosen)]
