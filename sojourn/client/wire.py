"""What the limits API answers, read with distrust: a malformed answer is refused whole and changes nothing."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

#: An answer longer than this, or with more limits, is not one of ours.
MAX_BYTES = 8 * 1024 * 1024
MAX_LIMITS = 100_000
#: No lease is believed for longer: a limit that nobody renews must end.
MAX_LEASE_SECONDS = 3600.0


class MalformedAnswer(ValueError):
    """The limits API answered something that is not its wire format."""


@dataclass(frozen=True, slots=True)
class WireLimit:
    """One limit: messages/s, messages, and how long it still holds, counted on the server's clock alone."""

    broker: str
    queue: str
    tenant: str
    rate: float
    burst: float
    lease_seconds: float
    reason: str


def parse(body: bytes) -> list[WireLimit]:
    """The limits in the body of ``GET /v1/limits``. Raises MalformedAnswer."""
    try:
        answer = json.loads(body)
        generated_at = _instant(answer["generated_at"])
        entries = answer["limits"]
        if not isinstance(entries, list) or len(entries) > MAX_LIMITS:
            raise MalformedAnswer("limits is not a list of reasonable length")
        return [_limit(entry, generated_at) for entry in entries]
    except MalformedAnswer:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedAnswer(f"{type(error).__name__}: {error}") from error


def _limit(entry: dict[str, Any], generated_at: datetime) -> WireLimit:
    rate, burst = float(entry["rate"]), float(entry["burst"])
    if not (math.isfinite(rate) and rate > 0 and math.isfinite(burst) and burst >= 1):
        raise MalformedAnswer(f"rate {rate} and burst {burst} are not a limit")
    broker, queue, tenant = entry["broker"], entry["queue"], entry["tenant"]
    if not all(isinstance(name, str) for name in (broker, queue, tenant)):
        raise MalformedAnswer("broker, queue and tenant must be text")
    # The difference of two instants of the server's clock: ours may be wrong by hours without harm.
    lease = (_instant(entry["valid_until"]) - generated_at).total_seconds()
    return WireLimit(broker, queue, tenant, rate, burst, min(lease, MAX_LEASE_SECONDS), str(entry.get("reason", "")))


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise MalformedAnswer(f"{text!r} has no time zone")
    return instant
