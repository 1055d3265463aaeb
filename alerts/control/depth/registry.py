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
        "nats": ("alerts.control.depth.nats", "NatsDepthSettings", "NatsDepth"),
        "redis": ("alerts.control.depth.redis", "RedisDepthSettings", "RedisDepth"),
    }
)

#: The settings of one broker, of whatever kind.
AnyDepth = Annotated[SerializeAsAny[DepthSettings], BeforeValidator(KINDS.chosen)]


def make(settings: DepthSettings) -> Depth:
    """Who asks the broker that ``settings`` describe; connects to nothing yet. UserError where a library lacks."""
    if getattr(settings, "kind", "") == "nats" and find_spec("nats") is None:
        raise UserError("glances at NATS need nats-py", "pip install 'sojourn[collectors]'")
    return KINDS.make(settings)
