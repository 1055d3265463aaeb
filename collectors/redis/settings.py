"""``kind = "redis"``: a Redis server and the queues that libraries keep there."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from collectors.broker import NetworkBroker


class RedisBroker(NetworkBroker):
    """One redis broker."""

    default_port: ClassVar[int] = 6379
    kind: Literal["redis"] = "redis"
    name: str = Field(default="redis", min_length=1)
    url: str = "redis://127.0.0.1:6379/0"
