"""The kinds of actuators: a name in the settings → where it is. Adding one is a file and a line here."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from actuators.base import Actuator, ActuatorSettings
from actuators.kinds import Kinds
from lake.errors import UserError

#: What a kind's settings are is imported with any of them; its client library where it is used.
KINDS: Kinds[ActuatorSettings, Actuator] = Kinds(
    {
        "file": ("actuators.file", "FileSettings", "File"),
        "redis_key": ("actuators.redis_key", "RedisKeySettings", "RedisKey"),
        "nats_kv": ("actuators.nats_kv", "NatsKvSettings", "NatsKv"),
        "nats_pause": ("actuators.nats_consumer", "NatsPauseSettings", "NatsPause"),
        "nats_max_ack_pending": ("actuators.nats_consumer", "NatsInFlightSettings", "NatsInFlight"),
        "rabbitmq_policy": ("actuators.rabbitmq_policy", "RabbitPolicySettings", "RabbitPolicy"),
        "rabbitmq_shovel": ("actuators.rabbitmq_shovel", "RabbitShovelSettings", "RabbitShovel"),
        "kafka_quota": ("actuators.kafka_quota", "KafkaQuotaSettings", "KafkaQuota"),
        "kafka_topic": ("actuators.kafka_topic", "KafkaTopicSettings", "KafkaTopic"),
        "webhook": ("actuators.webhook", "WebhookSettings", "Webhook"),
    }
)

#: What no policy names, and the reaper must know how to end.
OWN: Kinds[ActuatorSettings, Actuator] = Kinds(
    {"sqs_move_task": ("actuators.movers.sqs_task", "SqsTaskSettings", "SqsMoveTask")}
)

#: One actuator in the settings, of whatever kind.
AnySettings = Annotated[SerializeAsAny[ActuatorSettings], BeforeValidator(KINDS.chosen)]


def make(settings: ActuatorSettings) -> Actuator:
    """The actuator that ``settings`` describe; connects to nothing yet. UserError where its library is missing."""
    kind = getattr(settings, "kind", "")
    for kinds, module, library in (("nats", "nats", "nats-py"), ("kafka_topic", "confluent_kafka", "confluent-kafka")):
        if kind.startswith(kinds) and find_spec(module) is None:
            raise UserError(f"the actuator {settings.name!r} needs {library}", "pip install 'sojourn[collectors]'")
    return (OWN if kind in OWN.places else KINDS).make(settings)


def parsed(document: str) -> ActuatorSettings:
    """Settings that ``model_dump_json`` wrote."""
    told = json.loads(document)
    found: ActuatorSettings = (OWN if told.get("kind") in OWN.places else KINDS).chosen(told)
    return found
