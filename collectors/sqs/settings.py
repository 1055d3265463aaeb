"""``kind = "sqs"``: one account and region of Amazon SQS, or a server that speaks its protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import Settings, without_secrets
from collectors.broker import Broker
from lake.secret import Secret


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
        return endpoint if endpoint is None else _http(endpoint)


class SqsBroker(Broker):
    """One account and region. Credentials are found as the AWS tools find them, unless they are referred to here."""

    kind: Literal["sqs"] = "sqs"
    name: str = Field(default="sqs", min_length=1)
    region: str = Field(
        default_factory=lambda: _region(os.environ),
        validate_default=True,
        pattern=r"^[a-z0-9-]+$",
        description="else what AWS_REGION or AWS_DEFAULT_REGION name, else us-east-1",
    )
    endpoint: str | None = Field(default=None, description="another server than Amazon's; only then may it be http")
    fips: bool = Field(default=False, description="ask the region's FIPS endpoints")
    dual_stack: bool = Field(default=False, description="ask the region's endpoints that IPv6 reaches, too")
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,80}$", description="watch the queues so named alone")
    exclude: tuple[str, ...] = Field(
        default=(), description="patterns (*, ?) of queues to leave out: nothing is asked, or billed, of them"
    )
    profile: str | None = Field(default=None, description="profile of the AWS configuration to take credentials from")
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    role_arn: str | None = Field(
        default=None, pattern=r"^arn:[a-z-]+:iam::\d{12}:role/.+$", description="role to assume with those credentials"
    )
    external_id: str | None = Field(default=None, min_length=2, description="what the role's trust policy asks for")
    sample_interval: float = Field(
        default=30.0, ge=0.05, description="seconds between two readings of every queue, each a billed request"
    )
    list_interval: float = Field(default=60.0, ge=0, description="seconds between two listings of the queues")
    connections: int = Field(default=32, ge=1, le=256, description="requests under way at once")
    request_timeout: float = Field(default=3.0, ge=0.05, le=60, description="seconds that one answer may take")
    cycle_timeout: float = Field(default=20.0, ge=0.1, le=600, description="seconds after which a reading ends")
    convergence_seconds: float = Field(
        default=60.0, ge=0, description="told as the age of the counts, which SQS lets converge within about a minute"
    )
    in_flight_limit: int = Field(default=120_000, ge=1, description="the account's quota of a standard queue")
    fifo_in_flight_limit: int = Field(default=120_000, ge=1, description="the account's quota of a FIFO queue")
    cloudwatch: CloudWatchSettings = CloudWatchSettings()

    @field_validator("endpoint")
    @classmethod
    def _an_address(cls, endpoint: str | None) -> str | None:
        return endpoint if endpoint is None else _http(endpoint)

    @model_validator(mode="after")
    def _whole(self) -> SqsBroker:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("a session_token needs its access_key_id and secret_access_key")
        if self.external_id is not None and self.role_arn is None:
            raise ValueError("an external_id needs its role_arn")
        if self.profile is not None and self.access_key_id is not None:
            raise ValueError("give either profile or access_key_id")
        if self.endpoint is not None and (self.fips or self.dual_stack):
            raise ValueError("fips and dual_stack choose among the region's own endpoints: leave endpoint out")
        self.addresses()  # ValueError where the region has none of that kind
        if self.tls.enabled and self.url.startswith("http:"):
            raise ValueError("tls needs an https endpoint")
        return self

    @property
    def url(self) -> str:
        """Where SQS answers, without a closing slash."""
        return self.endpoint or self._of("sqs")

    @property
    def cloudwatch_url(self) -> str:
        """Where CloudWatch answers, without a closing slash."""
        return self.cloudwatch.endpoint or self._of("monitoring")

    def _of(self, service: str) -> str:
        try:
            from collectors.sqs.endpoints import endpoint
        except ModuleNotFoundError:  # nothing can be sampled then, which the factory says
            return f"https://{service}.{self.region}.amazonaws.com"
        return endpoint(service, self.region, fips=self.fips, dual_stack=self.dual_stack)

    def systems(self) -> frozenset[str]:
        """SQS, and Celery, which may use it."""
        return frozenset({"sqs", "celery"})

    def addresses(self) -> list[tuple[str, int]]:
        """SQS, and CloudWatch where it is asked."""
        urls = [self.url, self.cloudwatch_url] if self.cloudwatch.enabled else [self.url]
        found = [urlsplit(url) for url in urls]
        return [(parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)) for parts in found]


def _region(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"


def _http(url: str) -> str:
    parts = urlsplit(without_secrets(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an endpoint is https://host or, on a trusted network, http://host")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("an endpoint has no path: the protocol's requests all go to its root")
    standard = {"http": 80, "https": 443}[parts.scheme]
    port = "" if parts.port in (None, standard) else f":{parts.port}"  # left out, as signatures want it
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}"
