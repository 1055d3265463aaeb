"""What every notifier is given, and what it makes of it. Making it is pure: the same for equal arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from alerts.notify.target import Target
from lake.errors import SojournError, UserError

JSON = "application/json"


class Unsayable(SojournError):
    """What is to be told cannot be written in the receiver's format; somebody may fix its settings."""


@dataclass(frozen=True)
class Notification:
    """One attempt to tell a receiver of a group. ``id`` is the same for every attempt, ``at`` is the wall clock's.

    ``body`` is the group in Alertmanager's webhook format, version 4, to the byte.
    """

    id: str
    group_key: str
    body: str
    at: datetime

    @cached_property
    def payload(self) -> dict[str, Any]:
        """The body as a mapping."""
        payload: dict[str, Any] = json.loads(self.body)
        return payload

    @property
    def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire."""
        return [alert for alert in self.payload["alerts"] if alert["status"] == "firing"]

    @property
    def is_over(self) -> bool:
        """Whether nothing of the group fires any more."""
        return bool(self.payload["status"] == "resolved")

    @property
    def incident(self) -> str:
        """What the group is called where it is one incident: the same from its first alert to its end."""
        return hashlib.sha256(self.group_key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP POST."""

    target: Target
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mail:
    """A message for a mail server, which takes it from ``sender`` for each of ``recipients``."""

    target: Target
    sender: str
    recipients: tuple[str, ...]
    content: bytes
    starttls: bool
    password: str = field(repr=False, default="")


class Notifier(Protocol):
    """Writes notifications for one receiver."""

    def write(self, notification: Notification) -> Request | Mail:
        """What to send for ``notification``. Raises Unsayable; whatever else it raises is an attempt that failed."""


def encoded(payload: Any) -> bytes:
    """``payload`` as the JSON that is sent."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def needed_key(key: str | None, receiver: str, what: str) -> str:
    """``key``; UserError where there is none, or one that no header could carry."""
    if not key:
        raise UserError(f"receiver {receiver}: {what} is missing", "name it by secret_env or secret_file")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(f"receiver {receiver}: {what} holds a space or a sign that is not ASCII", "give the key alone")
    return key
