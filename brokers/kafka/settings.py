"""Where a Kafka cluster is, and who we are there."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import ClientCredentials, Settings, Tls, without_secrets
from lake.sasl import TABLES, Mechanism
from lake.secret import Secret


class OAuth(ClientCredentials):
    """Where tokens are fetched for ``mechanism = "OAUTHBEARER"``."""

    extensions: dict[str, str] = Field(default={}, description="what the brokers want to be told beside the token")


class Kerberos(Settings):
    """Who we are for ``mechanism = "GSSAPI"``."""

    service: str = Field(default="kafka", min_length=1, description="the brokers' service name")
    principal: str = Field(min_length=1)
    keytab: Path | None = Field(default=None, description="else the ticket that is there")


class Aws(Settings):
    """Whose credentials sign for ``mechanism = "AWS_MSK_IAM"``; they are found as the AWS tools find them."""

    region: str = Field(pattern=r"^[a-z0-9-]+$")
    profile: str | None = None


class Security(Settings):
    """How to be let in: what the sampler, the tap and the transport have in common."""

    user: str | None = Field(default=None, description="by SASL; with the password")
    password: Secret | None = None
    mechanism: Mechanism = "PLAIN"
    oauth: OAuth | None = None
    kerberos: Kerberos | None = None
    aws: Aws | None = None
    tls: Tls = Tls()

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("give user and password, or neither")
        for mechanism, name in TABLES.items():
            given = getattr(self, name) is not None
            if given != (self.mechanism == mechanism):
                raise ValueError(f'mechanism = "{mechanism}" and the table {name} belong together')
        if self.mechanism in TABLES and self.user is not None:
            raise ValueError(f"{self.mechanism} takes no user and password")
        if self.mechanism == "AWS_MSK_IAM" and not self.tls.enabled:
            raise ValueError("AWS_MSK_IAM is spoken over TLS alone: tls = { enabled = true }")
        return self

    @property
    def by_sasl(self) -> bool:
        """Whether we say who we are by SASL."""
        return self.user is not None or self.mechanism in TABLES


class KafkaCluster(Security):
    """One cluster, reached by any of its brokers."""

    name: str = Field(default="kafka", min_length=1)
    bootstrap: str = Field(default="127.0.0.1:9092", description="host:port, comma separated")
    server_name: str | None = Field(
        default=None, description="the name that certificates must have, where it is not the host's; sampler alone"
    )
    timeout_seconds: float = Field(default=5.0, gt=0, le=60, description="for each request to a broker")

    @field_validator("bootstrap")
    @classmethod
    def _without_secrets(cls, bootstrap: str) -> str:
        for address in bootstrap.split(","):
            if not urlsplit(without_secrets(f"//{address.strip()}")).hostname:
                raise ValueError("bootstrap is host:port, or several with commas between")
        return bootstrap

    def addresses(self) -> list[tuple[str, int]]:
        """The brokers of ``bootstrap``."""
        parts = [address.strip().rpartition(":") for address in self.bootstrap.split(",")]
        return [(host.strip("[]"), int(port)) if host else (port, 9092) for host, _, port in parts]
