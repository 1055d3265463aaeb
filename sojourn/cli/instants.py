"""Instants as commands take them."""

from __future__ import annotations

from datetime import UTC, datetime

from lake.errors import UserError


def instant(text: str) -> datetime:
    """``text`` in ISO 8601, in UTC where it names no zone. Raises UserError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"{text!r} is no instant", "write 2026-11-23T05:00 (UTC), or 7d before --to") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
