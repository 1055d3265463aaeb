"""Times as applications write them into messages and spans."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

#: Seconds since 1970, in the year 5138: a larger number counts something smaller.
_LATEST = 1e11


def unix_microseconds(value: Any) -> float | None:
    """Microseconds since 1970 from seconds or from ISO 8601 (UTC where it names no zone); None for anything else.

    Milliseconds are taken for none: they would lie in the future, where a message that waits has no age.
    """
    try:
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1e6
        return float(value) * 1e6 if isinstance(value, (int, float)) and 0 <= value < _LATEST else None
    except (ValueError, OverflowError):
        return None
