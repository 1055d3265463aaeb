"""``kind = "rabbitmq"``: a RabbitMQ node or cluster, read through its management API."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from collectors.broker import NetworkBroker


class RabbitBroker(NetworkBroker):
    """One rabbitmq broker."""

    default_port: ClassVar[int] = 15672
    kind: Literal["rabbitmq"] = "rabbitmq"
    name: str = Field(default="rabbitmq", min_length=1)
    url: str = Field(default="http://127.0.0.1:15672", description="the management API")
