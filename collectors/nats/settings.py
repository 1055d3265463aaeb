"""``kind = "nats"``: a NATS server with JetStream, the streams to watch there, and how to tap them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from collectors.broker import NetworkBroker, Settings, each_once, named, without_secrets
from lake.secret import Secret


class StreamSettings(Settings):
    """One stream to watch; a plain string in the list is its name."""

    name: str = Field(min_length=1)
    queue: str | None = Field(default=None, description="the queue's name in Sojourn; the stream's own unless set")
    tenant_header: str = Field(default="Tenant", description="header that names a message's tenant")
    tenant_token: int | None = Field(
        default=None,
        ge=1,
        description="where the header is absent: the subject's token (1 = first) that names the tenant",
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


class NatsBroker(NetworkBroker):
    """One server or cluster. Tapping changes the configuration of the streams that are listed."""

    default_port: ClassVar[int] = 4222
    kind: Literal["nats"] = "nats"
    name: str = Field(default="nats", min_length=1)
    url: str = "nats://127.0.0.1:4222"
    servers: tuple[str, ...] = Field(
        default=(), description="further servers of the cluster, nats://host:port, asked in turn where one is away"
    )
    domain: str | None = Field(
        default=None, pattern=r"^[^\s.*>]+$", description="JetStream domain, where it is not the server's own"
    )
    token: Secret | None = None
    nkey: Secret | None = Field(default=None, description="where the seed of a user's nkey (SU…) stands")
    credentials: Secret | None = Field(default=None, description="where the content of a .creds file stands")
    streams: tuple[Annotated[StreamSettings, BeforeValidator(named)], ...] = Field(
        default=(), description="what to sample and tap; empty: sample every stream, tap none"
    )
    backlogs: tuple[str, ...] = Field(
        default=(), description="patterns (*, ?) of streams whose messages wait though no consumer reads them: not logs"
    )
    tap: TapSettings = TapSettings()

    @field_validator("servers")
    @classmethod
    def _without_secrets_either(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for url in servers:
            if not urlsplit(without_secrets(url)).hostname:
                raise ValueError("a server is nats://host:port")
        return servers

    @model_validator(mode="after")
    def _one_identity(self) -> NatsBroker:
        if self.nkey is not None and self.credentials is not None:
            raise ValueError("give either nkey or credentials, which hold one")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """Every server, the first first."""
        return tuple(dict.fromkeys((self.url, *self.servers)))

    @property
    def api(self) -> str:
        """What the subjects of JetStream's API begin with."""
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

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
