"""The kinds of actuators: a name in the settings → where it is. Adding one is a file and a line here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from actuators.base import Actuator, ActuatorSettings
from lake.errors import UserError

#: Kind → (module, settings, actuator). What a kind's settings are is imported; its client library where it is used.
KINDS: dict[str, tuple[str, str, str]] = {
    "file": ("actuators.file", "FileSettings", "File"),
    "redis_key": ("actuators.redis_key", "RedisKeySettings", "RedisKey"),
    "nats_kv": ("actuators.nats_kv", "NatsKvSettings", "NatsKv"),
    "nats_pause": ("actuators.nats_consumer", "NatsPauseSettings", "NatsPause"),
    "nats_max_ack_pending": ("actuators.nats_consumer", "NatsInFlightSettings", "NatsInFlight"),
    "rabbitmq_policy": ("actuators.rabbitmq_policy", "RabbitPolicySettings", "RabbitPolicy"),
    "kafka_quota": ("actuators.kafka_quota", "KafkaQuotaSettings", "KafkaQuota"),
    "webhook": ("actuators.webhook", "WebhookSettings", "Webhook"),
}


def _chosen(given: Any) -> Any:
    """Settings of the class that ``kind`` names. ValueError for a kind that there is none of."""
    if not isinstance(given, Mapping):
        return given
    kind = given.get("kind")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, none of {', '.join(KINDS)}")
    module, settings, _ = KINDS[kind]
    return getattr(import_module(module), settings).model_validate(dict(given))


#: One actuator in the settings, of whatever kind.
AnySettings = Annotated[SerializeAsAny[ActuatorSettings], BeforeValidator(_chosen)]


def all_settings() -> list[type[ActuatorSettings]]:
    """The settings of every kind."""
    return [getattr(import_module(module), settings) for module, settings, _ in KINDS.values()]


def make(settings: ActuatorSettings) -> Actuator:
    """The actuator that ``settings`` describe; connects to nothing yet. UserError where its library is missing."""
    kind = getattr(settings, "kind", "")
    module, _, name = KINDS[kind]
    if kind.startswith("nats") and find_spec("nats") is None:
        raise UserError(f"the actuator {settings.name!r} needs nats-py", "pip install 'sojourn[collectors]'")
    found: Actuator = getattr(import_module(module), name)(settings)
    return found


def parsed(document: str) -> ActuatorSettings:
    """Settings that ``model_dump_json`` wrote."""
    found: ActuatorSettings = _chosen(json.loads(document))
    return found
