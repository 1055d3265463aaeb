"""What every kind of broker is asked: how many messages of a queue wait now. I/O, and no judgement.

A kind is a file – settings, and a class with :meth:`Depth.open`, :meth:`Depth.waiting`, :meth:`Depth.close` – and a
line in :mod:`alerts.control.depth.registry`.
"""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from brokers.settings import Settings
from lake.errors import SojournError


class Unknown(SojournError):
    """How many messages wait there is not known: never taken for zero."""


class DepthSettings(Settings):
    """What the settings of all kinds have in common; ``name`` is the broker's, as the collector calls it."""

    name: str = Field(min_length=1, description="the broker, as the collector names it")
    names: dict[str, str] = Field(
        default_factory=dict, description="queue → what the broker calls it, where that is another name"
    )
    questions_per_second: float = Field(
        default=10.0, gt=0, le=10, description="most questions to this broker, all of its queues together"
    )
    timeout: float = Field(default=1.0, gt=0, le=60, description="seconds in which the broker must answer")


class Depth(Protocol):
    """One broker. Its methods block, and are called by one thread; SojournError where something fails."""

    def open(self) -> None:
        """Connect, anew where a connection was lost."""
        ...

    def waiting(self, queue: str) -> float:
        """How many messages of ``queue``, as the broker calls it, wait and are in nobody's hands, of the subscriber
        that is the furthest behind: one question. Unknown where there is no such queue, or nobody reads it."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
