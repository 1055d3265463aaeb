"""What the settings of every connection have in common: an address, secrets by reference, TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lake.errors import UserError
from lake.secret import Secret


class Settings(BaseModel):
    """The base of all settings here: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(Settings):
    """How to speak TLS with a broker; the machine's own certificate authorities are trusted unless ``ca`` is set."""

    enabled: bool = False
    ca: Path | None = Field(default=None, description="PEM file of the authorities to trust instead of the machine's")
    certificate: Path | None = Field(default=None, description="PEM file of our own certificate, where one is asked")
    key: Path | None = Field(default=None, description="PEM file of its private key")
    key_password: Secret | None = Field(default=None, description="where that key is encrypted")

    @model_validator(mode="after")
    def _whole(self) -> Tls:
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs its certificate")
        if self.key_password is not None and self.certificate is None:
            raise ValueError("a key_password needs a certificate and its key")
        if not self.enabled and (self.ca or self.certificate):
            raise ValueError("set enabled = true, or leave ca and certificate out")
        return self

    def context(self) -> ssl.SSLContext | None:
        """What Python's clients take; None where TLS is off. UserError if a file cannot be used."""
        if not self.enabled:
            return None
        try:
            context = ssl.create_default_context(cafile=str(self.ca.expanduser()) if self.ca else None)
            if self.certificate is not None:
                key = self.key.expanduser() if self.key is not None else None
                # Given always: else OpenSSL would ask the terminal for it.
                secret = self.key_password.read("the key's password") if self.key_password is not None else ""
                context.load_cert_chain(self.certificate.expanduser(), key, secret)
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"the TLS files cannot be used: {error}", "fix ca, certificate and key") from None
        return context


class ClientCredentials(Settings):
    """Where OAuth 2 access tokens are fetched by client credentials (RFC 6749, section 4.4; OpenID Connect's)."""

    token_url: str = Field(description="the provider's token endpoint")
    client_id: str = Field(min_length=1)
    client_secret: Secret
    scope: str | None = None

    @field_validator("token_url")
    @classmethod
    def _endpoint(cls, url: str) -> str:
        parts = urlsplit(without_secrets(url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a token endpoint is https://…")
        return url


def without_secrets(url: str) -> str:
    """``url``; ValueError if it holds credentials, or a port that is none."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("no credentials in the address: give user and password by reference")
    _ = parts.port  # raises
    return url


class ServerSettings(Settings):
    """A server at one address, with a user's name and a password."""

    default_port: ClassVar[int] = 0
    name: str = Field(min_length=1)
    url: str
    user: str | None = None
    password: Secret | None = None
    tls: Tls = Tls()

    @field_validator("url")
    @classmethod
    def _without_secrets(cls, url: str) -> str:
        return without_secrets(url)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of ``url``."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or self.default_port
