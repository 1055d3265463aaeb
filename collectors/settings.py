"""``[collect]``: which brokers to watch, how often, and how much to hold when the lake does not take it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from lake.errors import UserError


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Secret(_Settings):
    """Where a secret stands: an environment variable or a file. The secret itself is never in the settings."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError('give either env = "NAME" or file = "path"')
        return self

    def read(self, what: str) -> str:
        """The secret; UserError, which names ``what`` and the place but never the value, if it is not there."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise UserError(
                    f"{what} is to come from the environment variable {self.env}, which is not set", "set it"
                )
            return value
        assert self.file is not None
        try:
            return self.file.expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(f"{what} cannot be read from {self.file}: {error.strerror}", "mend the path") from None


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class StreamSettings(_Settings):
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

    @property
    def queue_name(self) -> str:
        """The name under which the stream's messages are recorded."""
        return self.queue or self.name


class TapSettings(_Settings):
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


class BrokerSettings(_Settings):
    """One broker and what to watch there. Tapping changes the configuration of the streams that are listed."""

    name: str = Field(default="nats", min_length=1, description="the broker's name in every record")
    kind: str = "nats"
    url: str = "nats://127.0.0.1:4222"
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    streams: tuple[Annotated[StreamSettings, BeforeValidator(_named)], ...] = Field(
        default=(), description="what to sample and tap; empty: sample every stream, tap none"
    )
    sample: bool = True
    tap: TapSettings = TapSettings()

    @field_validator("url")
    @classmethod
    def _without_secrets(cls, url: str) -> str:
        if "@" in urlsplit(url).netloc:
            raise ValueError("no credentials in the address: use user and password, or token, by reference")
        return url

    @field_validator("streams")
    @classmethod
    def _each_once(cls, streams: tuple[StreamSettings, ...]) -> tuple[StreamSettings, ...]:
        for what in ([stream.name for stream in streams], [stream.queue_name for stream in streams]):
            for name in what:
                if what.count(name) > 1:
                    raise ValueError(f"{name!r} is there twice")
        return streams


class CollectSettings(_Settings):
    """The whole section; the defaults watch nothing until a broker is listed."""

    brokers: tuple[BrokerSettings, ...] = ()
    sample_interval: float = Field(default=1.0, ge=0.05, description="seconds between two samples of every queue")
    flush_interval: float = Field(default=0.2, ge=0.02, le=60, description="seconds between two commits to the lake")
    buffer_capacity: int = Field(
        default=200_000, ge=1, description="events held while the lake takes none; above, they are rolled up"
    )
    compact_every: int = Field(default=150, ge=10, description="commits between two compactions of a bronze table")
    connect_grace: float = Field(default=10.0, ge=0, description="seconds in which one broker must be reached at start")
    metrics_port: int | None = Field(default=None, ge=0, le=65535, description="loopback port of Prometheus metrics")

    @field_validator("brokers")
    @classmethod
    def _each_once(cls, brokers: tuple[BrokerSettings, ...]) -> tuple[BrokerSettings, ...]:
        names = [broker.name for broker in brokers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two brokers are named {name!r}")
        return brokers
