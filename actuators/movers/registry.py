"""The kinds of brokers whose messages can be moved: adding one is a file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from actuators.movers.base import Mover, MoverSettings

#: Kind → (module, settings, mover).
KINDS: dict[str, tuple[str, str, str]] = {
    "nats": ("actuators.movers.nats", "NatsMoverSettings", "NatsMover"),
    "redis_stream": ("actuators.movers.redis", "RedisMoverSettings", "RedisStreamMover"),
    "redis_list": ("actuators.movers.redis", "RedisListSettings", "RedisListMover"),
    "rabbitmq": ("actuators.movers.rabbitmq", "RabbitMoverSettings", "RabbitMover"),
}


def chosen(given: Any) -> Any:
    """Settings of the class that ``kind`` names. ValueError for a kind that there is none of."""
    if not isinstance(given, Mapping):
        return given
    kind = given.get("kind")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, none of {', '.join(KINDS)}")
    module, settings, _ = KINDS[kind]
    return getattr(import_module(module), settings).model_validate(dict(given))


AnyMover = Annotated[SerializeAsAny[MoverSettings], BeforeValidator(chosen)]


def all_settings() -> list[type[MoverSettings]]:
    """The settings of every kind."""
    return [getattr(import_module(module), settings) for module, settings, _ in KINDS.values()]


def make(settings: MoverSettings) -> Mover:
    """The mover that ``settings`` describe; connects to nothing yet."""
    module, _, name = KINDS[getattr(settings, "kind", "")]
    found: Mover = getattr(import_module(module), name)(settings)
    return found
