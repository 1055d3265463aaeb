"""``kind = "nats"``: a NATS server with JetStream, the streams to watch there, and how to tap them."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from brokers.nats.settings import NatsServer
from brokers.settings import Settings
from brokers.tenants import Older, TenantRules, newer, only, parse
from collectors.broker import NetworkBroker, each_once, named


class _Older(Older):
    """A header, and the subject's token of a number (1 = first) where that is absent."""

    tenant_header: str = "Tenant"
    tenant_token: int | None = Field(default=None, ge=1)

    def rules(self) -> list[str]:
        """The subject is the message's key; its token may be the last."""
        header = [f"header:{self.tenant_header}"] if self.tenant_header else []
        if self.tenant_token is None:
            return header
        token = "*." * (self.tenant_token - 1) + "{tenant}"
        return [*header, f"key:{token}.*", f"key:{token}"]


class StreamSettings(Settings):
    """One stream to watch; a plain string in the list is its name."""

    name: str = Field(min_length=1)
    queue: str | None = Field(default=None, description="the queue's name in Sojourn; the stream's own unless set")
    tenant: Annotated[TenantRules, only("header", "key", "queue")] = Field(
        default=(parse("header:Tenant"),), description="where a message names its tenant; key is its subject"
    )
    dead_letter_for: str | None = Field(
        default=None, description="set on a dead-letter stream, which is sampled and not tapped: the queue it serves"
    )
    subjects: str | None = Field(
        default=None,
        min_length=1,
        description="also count what the stream holds of each subject that this pattern (with * and >) names",
    )
    most_subjects: int = Field(
        default=100, ge=1, le=10_000, description="so many subjects, the fullest, are told apart; the others together"
    )

    @model_validator(mode="before")
    @classmethod
    def _newer(cls, value: Any) -> Any:
        return newer(value, _Older)

    @property
    def queue_name(self) -> str:
        """The name under which the stream's messages are recorded."""
        return self.queue or self.name


class TapSettings(Settings):
    """The durable stream at the broker that keeps every watched message's life until it is in the lake."""

    enabled: bool = True
    stream: str = Field(default="SOJOURN_TAP", pattern=r"^[A-Za-z0-9_-]+$")
    subject_prefix: str = Field(default="sojourn.tap", pattern=r"^[A-Za-z0-9_.-]+$")
    max_bytes: int = Field(default=1 << 30, ge=1 << 20)
    max_age_seconds: float = Field(default=86_400.0, ge=60)
    poll_interval: float = Field(
        default=0.06, ge=0.02, le=5, description="seconds between two looks at what is in flight"
    )
    hold_seconds: float = Field(
        default=0.25, ge=0, le=10, description="how long a receipt waits for the exact time that its ack will tell"
    )
    first_look_limit: int = Field(
        default=100_000, ge=0, description="messages already waiting that are recorded when a stream is first watched"
    )
    max_unfinished: int = Field(default=4_000_000, ge=4096, description="unfinished messages remembered a stream")


class NatsBroker(NatsServer, NetworkBroker):
    """One server or cluster. Tapping changes the configuration of the streams that are listed."""

    kind: Literal["nats"] = "nats"
    streams: tuple[Annotated[StreamSettings, BeforeValidator(named)], ...] = Field(
        default=(), description="what to sample and tap; empty: sample every stream, tap none"
    )
    backlogs: tuple[str, ...] = Field(
        default=(), description="patterns (*, ?) of streams whose messages wait though no consumer reads them: not logs"
    )
    tap: TapSettings = TapSettings()

    def addresses(self) -> list[tuple[str, int]]:
        """Where the servers are."""
        found = [urlsplit(url) for url in self.urls]
        return [(parts.hostname or "", parts.port or self.default_port) for parts in found]

    @field_validator("streams")
    @classmethod
    def _each_once(cls, streams: tuple[StreamSettings, ...]) -> tuple[StreamSettings, ...]:
        each_once([stream.name for stream in streams])
        each_once([stream.queue_name for stream in streams])
        return streams
