"""``[collect.receive]``: where applications send OpenTelemetry spans and events of the client."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from brokers.settings import Settings
from lake.secret import Secret
from lake.web.address import is_loopback

_MIB = 1024 * 1024


class ReceiveTls(Settings):
    """The certificate that the receiver shows, PEM files; without it, it speaks plain text."""

    certificate: Path
    key: Path


class JoinSettings(Settings):
    """Which watched broker and queue a span's are, where nothing else tells. The first that fits counts."""

    system: str = Field(min_length=1, description="messaging.system of the spans; celery for Celery's instrumentation")
    server: str | None = Field(default=None, description="host or host:port of server.address; any where left out")
    queue: str = Field(default="*", min_length=1, description="pattern (*, ?) of the spans' destinations")
    broker: str = Field(min_length=1, description="the broker's name, as in [[collect.brokers]]")
    as_queue: str | None = Field(default=None, min_length=1, description="the queue's name there; the same unless set")

    @field_validator("server")
    @classmethod
    def _an_address(cls, server: str | None) -> str | None:
        if server is not None and (not server or "/" in server or "@" in server):
            raise ValueError("a server is host or host:port, as spans tell it")
        return server


class ReceiveSettings(Settings):
    """The receiver; off unless enabled."""

    enabled: bool = False
    name: str = Field(default="receive", min_length=1, description="tells receivers of one lake apart")
    host: str = Field(default="127.0.0.1", description="address to listen on; any but the loopback's needs a token")
    grpc_port: int = Field(default=4317, ge=0, le=65535, description="OTLP/gRPC; 0: not offered")
    http_port: int = Field(default=4318, ge=0, le=65535, description="OTLP/HTTP and the client's events; 0: not")
    token: Secret | None = Field(default=None, description="what senders give as 'Authorization: Bearer …'")
    hosts: tuple[str, ...] = Field(
        default=(), description="names in URLs of senders besides the loopback's, addresses and 'host'"
    )
    tls: ReceiveTls | None = None
    names: dict[str, str] = Field(
        default_factory=dict, description="messaging.system of spans → the broker's name in records"
    )
    joins: tuple[JoinSettings, ...] = Field(
        default=(), description="explicit joins of spans to watched queues, before what addresses and samples tell"
    )
    publishes: bool = Field(
        default=False,
        description="count send spans, with their durations, as publishes of applications that do not count them "
        "themselves: what the law `publishing` is judged by (docs/otlp.md)",
    )
    max_request_bytes: int = Field(default=16 * _MIB, ge=1024, description="of one request, unpacked")
    max_spans: int = Field(default=50_000, ge=1, description="messages that one request may tell of")
    max_pending_bytes: int = Field(default=64 * _MIB, ge=1024, description="of requests that are not answered yet")
    max_pending: int = Field(default=1_000, ge=1, description="requests that are not answered yet")
    max_connections: int = Field(
        default=1_000,
        ge=4,
        description="of HTTP, and of gRPC; a quarter is kept for peers that have sent a proper request lately",
    )
    header_seconds: float = Field(default=10.0, gt=0, description="in which a request's headers must come")
    body_seconds: float = Field(default=30.0, gt=0, description="in which its body must follow")
    idle_seconds: float = Field(default=15.0, gt=0, description="that a connection may wait for its next request")
    answer_seconds: float = Field(default=30.0, gt=0, description="after which a request is told to come again")
    horizon_seconds: float = Field(default=900.0, gt=0, description="how long a repeated event is known as such")
    horizon_events: int = Field(default=4_000_000, ge=1000, le=8_000_000, description="and how many events, at most")
    hold_seconds: float = Field(
        default=6.0, ge=0, le=60, description="how long a consumer's span waits for its producer's; 0: not at all"
    )
    hold_spans: int = Field(default=20_000, ge=0, description="and how many, at most; one more is told as it is")
    remembered: int = Field(default=50_000, ge=1, description="messages whose send span is remembered")

    @model_validator(mode="after")
    def _guarded(self) -> ReceiveSettings:
        if self.token is None and not is_loopback(self.host):
            raise ValueError('a host other than the loopback needs token = { env = "NAME" } or { file = "path" }')
        if not self.grpc_port and not self.http_port:
            raise ValueError("set grpc_port, http_port or both")
        if self.max_pending_bytes < self.max_request_bytes:
            raise ValueError("max_pending_bytes must hold one request of max_request_bytes")
        return self
