"""The kinds of brokers that are asked: a name in the settings → where it is. Adding one is a file and a line here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from actuators.kinds import Kinds
from alerts.control.depth.base import Depth, DepthSettings
from lake.errors import UserError

KINDS: Kinds[DepthSettings, Depth] = Kinds(
    {
        "kafka": ("alerts.control.depth.kafka", "KafkaDepthSettings", "KafkaDepth"),
        "nats": ("alerts.control.depth.nats", "NatsDepthSettings", "NatsDepth"),
        "rabbitmq": ("alerts.control.depth.rabbitmq", "RabbitDepthSettings", "RabbitDepth"),
        "redis": ("alerts.control.depth.redis", "RedisDepthSettings", "RedisDepth"),
    }
)

#: What the extra for collectors brings.
_LIBRARIES = {
    "kafka": ("confluent_kafka", "confluent-kafka"),
    "nats": ("nats", "nats-py"),
    "rabbitmq": ("pika", "pika"),
}

#: The settings of one broker, of whatever kind.
AnyDepth = Annotated[SerializeAsAny[DepthSettings], BeforeValidator(KINDS.chosen)]


def make(settings: DepthSettings) -> Depth:
    """Who asks the broker that ``settings`` describe; connects to nothing yet. UserError where a library lacks."""
    kind = getattr(settings, "kind", "")
    module, library = _LIBRARIES.get(kind, ("", ""))
    if module and find_spec(module) is None:
        raise UserError(f"glances at {kind} need {library}", "pip install 'sojourn[collectors]'")
    return KINDS.make(settings)
