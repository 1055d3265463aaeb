"""What the settings of every kind of broker that is watched have in common."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field

from brokers.settings import ServerSettings, Settings, Tls


class Broker(Settings):
    """One broker; each kind adds what it needs. ``name`` is the broker's name in every record."""

    name: str = Field(min_length=1)
    sample: bool = Field(default=True, description="read the queues' own numbers each sample_interval")
    sample_interval: float | None = Field(
        default=None,
        ge=0.05,
        description="seconds between two samples of these queues; unset: [collect] sample_interval",
    )
    tls: Tls = Tls()

    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports that must answer, for ``sojourn doctor``; empty where there is nothing to try."""
        return []

    def systems(self) -> frozenset[str]:
        """What spans may call a broker of this kind; frameworks that may use it as theirs among them."""
        return frozenset({getattr(self, "kind", "")})


class NetworkBroker(Broker, ServerSettings):
    """A broker at one address, with a user's name and a password."""

    def addresses(self) -> list[tuple[str, int]]:
        """Where ``url`` points."""
        return [self.address]


def matching(name: str, patterns: Iterable[str]) -> bool:
    """Whether ``name`` is, or matches, one of the shell ``patterns`` (``*``, ``?``, ``[...]``)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def each_once(names: list[str]) -> None:
    """ValueError for the first name that is there twice."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is there twice")


def named(value: Any) -> Any:
    """Lets a plain string in a list stand for a table with that name alone."""
    return {"name": value} if isinstance(value, str) else value
