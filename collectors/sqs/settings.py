"""``kind = "sqs"``: one account and region of Amazon SQS, or a server that speaks its protocol."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import Settings
from brokers.sqs.settings import SqsAccount, http_root
from collectors.broker import Broker


class CloudWatchSettings(Settings):
    """What CloudWatch adds: the oldest message's age, and counts of messages and of empty receives. It is billed by
    the metric asked for: five a queue and reading, unless fewer are named."""

    enabled: bool = False
    endpoint: str | None = Field(default=None, description="another address than the region's own")
    interval: float = Field(default=60.0, ge=1, description="seconds between two readings; its minutes are no finer")
    metrics: tuple[Literal["age", "empty_receives", "sent", "received", "deleted"], ...] = (
        "age",
        "empty_receives",
        "sent",
        "received",
        "deleted",
    )

    @field_validator("endpoint")
    @classmethod
    def _an_address(cls, endpoint: str | None) -> str | None:
        return endpoint if endpoint is None else http_root(endpoint)


class SqsBroker(Broker, SqsAccount):
    """One account and region. Credentials are found as the AWS tools find them, unless they are referred to here."""

    kind: Literal["sqs"] = "sqs"
    name: str = Field(default="sqs", min_length=1)
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,80}$", description="watch the queues so named alone")
    exclude: tuple[str, ...] = Field(
        default=(), description="patterns (*, ?) of queues to leave out: nothing is asked, or billed, of them"
    )
    sample_interval: float = Field(
        default=30.0, ge=0.05, description="seconds between two readings of every queue, each a billed request"
    )
    list_interval: float = Field(default=60.0, ge=0, description="seconds between two listings of the queues")
    connections: int = Field(default=32, ge=1, le=256, description="requests under way at once")
    cycle_timeout: float = Field(default=20.0, ge=0.1, le=600, description="seconds after which a reading ends")
    convergence_seconds: float = Field(
        default=60.0, ge=0, description="told as the age of the counts, which SQS lets converge within about a minute"
    )
    in_flight_limit: int = Field(default=120_000, ge=1, description="the account's quota of a standard queue")
    fifo_in_flight_limit: int = Field(default=120_000, ge=1, description="the account's quota of a FIFO queue")
    cloudwatch: CloudWatchSettings = CloudWatchSettings()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.addresses()  # ValueError where the region has none of that kind
        return self

    @property
    def cloudwatch_url(self) -> str:
        """Where CloudWatch answers, without a closing slash."""
        return self.cloudwatch.endpoint or self.of_region("monitoring")

    def systems(self) -> frozenset[str]:
        """SQS, and Celery, which may use it."""
        return frozenset({"sqs", "celery"})

    def addresses(self) -> list[tuple[str, int]]:
        """SQS, and CloudWatch where it is asked."""
        urls = [self.url, self.cloudwatch_url] if self.cloudwatch.enabled else [self.url]
        found = [urlsplit(url) for url in urls]
        return [(parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)) for parts in found]
