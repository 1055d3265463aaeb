"""Where a NATS server or cluster is, and who we are there."""

from __future__ import annotations

from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import ServerSettings, without_secrets
from lake.secret import Secret


class NatsServer(ServerSettings):
    """One server or cluster with JetStream."""

    default_port: ClassVar[int] = 4222
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

    @field_validator("servers")
    @classmethod
    def _without_secrets_either(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for url in servers:
            if not urlsplit(without_secrets(url)).hostname:
                raise ValueError("a server is nats://host:port")
        return servers

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
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
