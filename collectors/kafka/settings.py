"""``kind = "kafka"``: a Kafka cluster: its groups and topics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from collectors.broker import Broker


class KafkaBroker(Broker):
    """One kafka broker."""

    kind: Literal["kafka"] = "kafka"
    name: str = Field(default="kafka", min_length=1)
    bootstrap: str = Field(default="127.0.0.1:9092", description="host:port, comma separated")
