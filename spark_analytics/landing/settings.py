"""``[analyze.transport]``: where the analytics find the records that collectors wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from lake.errors import UserError
from lake.sasl import JAVA_LOGIN, ByPassword
from lake.secret import Secret


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(_Settings):
    """How to speak TLS: Java's own authorities are trusted unless ``ca`` is set."""

    enabled: bool = False
    ca: Path | None = Field(default=None, description="PEM file of the authorities to trust instead")
    certificate: Path | None = Field(default=None, description="PEM file of our own certificate, where one is asked")
    key: Path | None = Field(default=None, description="PEM file of its private key (PKCS 8)")

    @model_validator(mode="after")
    def _whole(self) -> Tls:
        if (self.key is None) != (self.certificate is None):
            raise ValueError("a certificate and its key belong together")
        if not self.enabled and (self.ca or self.certificate):
            raise ValueError("set enabled = true, or leave ca and certificate out")
        return self


class TransportSettings(_Settings):
    """The lake itself, unless ``kind = "kafka"`` is chosen; all other keys are Kafka's."""

    kind: Literal["lake", "kafka"] = "lake"
    bootstrap: str = Field(default="127.0.0.1:9092", description="host:port, comma separated")
    prefix: str = Field(default="sojourn", pattern=r"^[A-Za-z0-9._-]{1,200}$", description="what all topics begin with")
    starting_offsets: Literal["earliest", "latest"] | AwareDatetime = Field(
        default="earliest",
        description="where to begin with a topic of which the lake holds nothing; a time, with its zone: what Kafka "
        "took since then",
    )
    max_offsets_per_trigger: int = Field(
        default=200_000, ge=1, description="records of a topic in one batch: bounds memory while catching up"
    )
    fail_on_data_loss: bool = Field(
        default=True, description="stop where Kafka removed records that were not read; false: go on without them"
    )
    compact_every: int = Field(default=150, ge=10, description="batches between two compactions of a bronze table")
    user: str | None = Field(default=None, description="by SASL; with the password")
    password: Secret | None = None
    mechanism: ByPassword = "PLAIN"
    tls: Tls = Tls()

    @model_validator(mode="after")
    def _whole(self) -> TransportSettings:
        if (self.user is None) != (self.password is None):
            raise ValueError("give user and password, or neither")
        return self

    def client(self) -> dict[str, str]:
        """The configuration of a Java client. It holds the password: never log it.

        UserError where the password or a file cannot be read.
        """
        config = {"bootstrap.servers": self.bootstrap}
        sasl = "SASL_" if self.user is not None else ""
        config["security.protocol"] = sasl + ("SSL" if self.tls.enabled else "PLAINTEXT")
        if self.user is not None:
            assert self.password is not None
            user, password = _quoted(self.user), _quoted(self.password.read("Kafka's password"))
            config["sasl.mechanism"] = self.mechanism
            config["sasl.jaas.config"] = f"{JAVA_LOGIN[self.mechanism]} required username={user} password={password};"
        if self.tls.ca is not None:
            config |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(self.tls.ca)}
        if self.tls.certificate is not None and self.tls.key is not None:
            config |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": _text(self.tls.certificate),
                "ssl.keystore.key": _text(self.tls.key),
            }
        return config


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"{path} cannot be read: {reason}", "fix the path") from None
