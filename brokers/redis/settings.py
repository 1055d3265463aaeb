"""Where a Redis server is, and who we are there."""

from __future__ import annotations

from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import ServerSettings

_SECURE = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}


class RedisServer(ServerSettings):
    """One Redis or Valkey server."""

    default_port: ClassVar[int] = 6379
    name: str = Field(default="redis", min_length=1)
    url: str = "redis://127.0.0.1:6379/0"
    timeout: float = Field(default=3.0, gt=0, le=60, description="seconds in which the server must answer")

    @model_validator(mode="before")
    @classmethod
    def _secure_by_address(cls, values: Any) -> Any:
        """An address of rediss:// is TLS; files of it may be named without enabling it once more."""
        if isinstance(values, dict) and _SECURE.get(urlsplit(str(values.get("url", ""))).scheme):
            tls = values.get("tls", {})
            return values | {"tls": {"enabled": True, **tls} if isinstance(tls, dict) else tls}
        return values

    @field_validator("url")
    @classmethod
    def _understood(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in _SECURE or not parts.hostname:
            raise ValueError("an address is redis://host:port/database, with TLS rediss://; for Sentinels set sentinel")
        if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
            raise ValueError("what follows the port is the number of the database")
        if parts.query or parts.fragment:
            raise ValueError("options are no part of the address: they have settings of their own")
        return url

    @model_validator(mode="after")
    def _secure(self) -> Self:
        if _SECURE[urlsplit(self.url).scheme] and not self.tls.enabled:
            raise ValueError("the address asks for TLS, and tls.enabled is false")
        return self

    @property
    def database(self) -> int:
        """The number of the database, 0 unless ``url`` says another."""
        return int(urlsplit(self.url).path.strip("/") or 0)
