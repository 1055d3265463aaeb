"""``kind = "sqs"``: Amazon SQS, or a server that speaks its protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from collectors.broker import Broker


class SqsBroker(Broker):
    """One sqs broker."""

    kind: Literal["sqs"] = "sqs"
    name: str = Field(default="sqs", min_length=1)
    region: str = "us-east-1"
    endpoint: str | None = Field(default=None, description="another server than Amazon's")
