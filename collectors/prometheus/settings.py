"""``kind = "prometheus"``: a page of metrics that tells a broker's queues, and the recipe by which it is read."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from brokers.tenants import TenantRules, only
from collectors.broker import NetworkBroker
from lake.secret import Secret


class PrometheusBroker(NetworkBroker):
    """One page of metrics: the broker's own, its exporter's, or an OpenTelemetry Collector's."""

    default_port = 80
    kind: Literal["prometheus"]
    url: str = Field(description="http:// or https:// address of the metrics, path and all")
    recipe: Literal["pulsar", "artemis", "pubsub", "servicebus"] = Field(description="whose metrics they are")
    queues: tuple[str, ...] = Field(default=(), description="names or patterns (*, ?) of queues; empty: all")
    dead_letters: dict[str, str] = Field(
        default_factory=dict, description="dead-letter queue → the queue it serves, where the metrics do not tell"
    )
    tenant: Annotated[TenantRules, only("queue")] = ()
    token: Secret | None = Field(default=None, description="a bearer token, instead of user and password")
    timeout: float = Field(default=10.0, gt=0, le=60, description="seconds that the page may take")
    staleness: float = Field(
        default=0.0, ge=0, description="seconds by which the numbers are late: cloud services' are by minutes"
    )

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError("an address of metrics is http://… or https://…")
        return url

    def addresses(self) -> list[tuple[str, int]]:
        """Where ``url`` points."""
        parts = urlsplit(self.url)
        return [(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))]
