"""``[collect.transport]``: where collectors put their records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from brokers.kafka.settings import Security
from collectors.kafka.settings import KafkaBroker


class TransportSettings(Security):
    """The lake itself, unless ``kind = "kafka"`` is chosen; all other keys are Kafka's."""

    kind: Literal["lake", "kafka"] = "lake"
    bootstrap: str = Field(default="127.0.0.1:9092", description="host:port, comma separated")
    prefix: str = Field(default="sojourn", pattern=r"^[A-Za-z0-9._-]{1,200}$", description="what all topics begin with")
    partitions: int = Field(default=4, ge=1, le=10_000, description="of topics that are not there yet")
    replication: int | None = Field(default=None, ge=1, description="of topics not there yet; none: Kafka's default")
    timeout_seconds: float = Field(default=10.0, gt=0, le=60, description="for each request, and to commit a batch")
    catch_up_seconds: float = Field(
        default=5.0, ge=0, le=60, description="how long a tap that starts waits for the analytics to fill the lake"
    )

    @model_validator(mode="after")
    def _whole(self) -> TransportSettings:
        self.as_broker()
        return self

    def as_broker(self) -> KafkaBroker:
        """What connecting takes, as the settings of a Kafka broker; ValidationError where they are not whole."""
        return KafkaBroker(
            name="transport",
            bootstrap=self.bootstrap,
            **{name: getattr(self, name) for name in Security.model_fields},
            timeout_seconds=self.timeout_seconds,
        )
