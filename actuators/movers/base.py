"""What a mover is: one queue's oldest messages, those that are chosen, carried to another queue in their order.

A message is in the other queue, durably, before it leaves the first: whoever is killed half-way leaves a batch at most
twice, under the same move ids, and loses none. Body and headers stay as they were; one header, :data:`TRACE`, tells of
the move. What a consumer has in its hands is never moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from pydantic import Field, model_validator

from brokers.settings import Settings
from brokers.tenants import Older, TenantRules, newer

#: The header, or field, that tells of a move: JSON of :class:`Trace`.
TRACE = "Sojourn-Moved"


@dataclass(frozen=True, slots=True)
class Message:
    """One message that waits; ``enqueued_at`` in unix seconds, of its first queue where it was moved."""

    id: str
    tenant: str | None
    enqueued_at: float | None
    headers: Mapping[str, str] = field(default_factory=dict)

    def age(self, now: float) -> float:
        """Seconds since it was enqueued; 0 where nobody knows."""
        return 0.0 if self.enqueued_at is None else max(0.0, now - self.enqueued_at)


Choice = Callable[[Message], bool]


@dataclass(frozen=True, slots=True)
class Moved:
    """What one batch did: messages carried, messages looked at."""

    moved: int
    looked: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a message came from: its move's id, its first queue and address there, when it was enqueued, when moved."""

    id: str
    origin: str
    address: str
    enqueued_at: float | None
    at: str
    kept: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def now(id: str, origin: str, address: str, enqueued_at: float | None, kept: Mapping[str, str]) -> Trace:
        """The trace of a first move."""
        return Trace(id, origin, address, enqueued_at, datetime.now(UTC).isoformat(timespec="milliseconds"), kept)

    def text(self) -> str:
        """As it stands in the header."""
        told: dict[str, Any] = {"id": self.id, "from": self.origin, "address": self.address, "at": self.at}
        return json.dumps(told | {"enqueued_at": self.enqueued_at, "kept": dict(self.kept)}, sort_keys=True)

    @staticmethod
    def of(text: str | None) -> Trace | None:
        """The trace that a header tells; None where it tells none."""
        try:
            told = json.loads(text or "")
            kept = {str(name): str(value) for name, value in (told.get("kept") or {}).items()}
            return Trace(told["id"], told["from"], told["address"], told.get("enqueued_at"), told["at"], kept)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


class _Older(Older):
    """The header alone."""

    tenant_header: str = "tenant"

    def rules(self) -> list[str]:
        return [f"header:{self.tenant_header}"]


class MoverSettings(Settings):
    """What the settings of all movers have in common; each kind says where it can find a tenant, and does by itself."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$", description="the broker, as the collector names it")
    tenant: TenantRules
    timeout: float = Field(default=10.0, gt=0, le=120, description="seconds in which one batch must be carried")

    @model_validator(mode="before")
    @classmethod
    def _newer(cls, value: Any) -> Any:
        return newer(value, _Older)


class Mover(Protocol):
    """One broker's mover. Blocks; SojournError where the broker fails, Refused where it cannot be done there."""

    def move(self, source: str, target: str, choose: Choice, most: int, *, skip: int = 0) -> Moved:
        """Carry up to ``most`` of the chosen messages that wait in ``source``, the oldest first; the first ``skip`` of
        them are left where they are."""
        ...

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """:meth:`move` to where they came from. What has come to ``home`` of the same tenants meanwhile, and nobody has
        in his hands, goes behind those that are still aside: the order within a tenant is kept, where the broker keeps
        one. With ``most`` 0 that is all that is done."""
        ...

    def count(self, queue: str, choose: Choice, most: int) -> int:
        """How many of the chosen wait in ``queue`` and are in nobody's hands; no more than ``most`` are counted."""
        ...

    def drop(self, source: str, choose: Choice, most: int) -> int:
        """Throw the chosen ones away; how many. For queues whose owner says that messages may be lost."""
        ...

    def waiting(self, queue: str) -> int:
        """Messages in ``queue``; 0 where there is none of that name."""
        ...
