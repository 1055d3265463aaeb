"""What an attempt's answer means for the parcel: pure, so that every case stands in a table of tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from alerts.store.outbox import DeliveryOutcome

FIRST_DELAY = timedelta(milliseconds=500)
LARGEST_DELAY = timedelta(minutes=5)
#: No receiver may silence us for longer, whatever its Retry-After says.
LARGEST_RETRY_AFTER = timedelta(hours=1)
#: 4xx answers that are about the moment, not about the request.
_TEMPORARY = (408, 425, 429)
GONE = 410


@dataclass(frozen=True, slots=True)
class Verdict:
    """``retry_in`` None = the parcel is done with; ``disable`` = the receiver is gone for good."""

    outcome: DeliveryOutcome
    retry_in: timedelta | None = None
    disable: bool = False


def judge(
    status: int | None,
    *,
    attempts: int,
    age: timedelta,
    retry_for: timedelta,
    retry_after: timedelta | None,
    jitter: float,
) -> Verdict:
    """What to do after attempt number ``attempts`` ended with HTTP ``status`` (None = no answer at all).

    ``age``: how long the parcel has been tried; ``jitter`` in [0, 1) spreads the retries of many parcels.
    """
    if status is not None and 200 <= status < 300:
        return Verdict("delivered")
    if status == GONE:
        return Verdict("refused", disable=True)
    if status is not None and status < 500 and status not in _TEMPORARY:
        return Verdict("refused")
    if age >= retry_for:
        return Verdict("failed")
    delay = backoff(attempts, jitter)
    if retry_after is not None:
        delay = max(delay, min(retry_after, LARGEST_RETRY_AFTER))
    return Verdict("retry", delay)


def backoff(attempts: int, jitter: float) -> timedelta:
    """Exponential, between half and all of ``FIRST_DELAY × 2^(attempts − 1)``, at most ``LARGEST_DELAY``."""
    full: timedelta = min(FIRST_DELAY * float(1 << min(attempts - 1, 16)), LARGEST_DELAY)
    return full * (0.5 + jitter / 2)


def parse_retry_after(header: str | None, now: datetime) -> timedelta | None:
    """The pause that a Retry-After header asks for: seconds or an HTTP date. None if there is none to be read."""
    if header is None:
        return None
    header = header.strip()
    if header.isdigit():
        return timedelta(seconds=min(int(header), 86_400))
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(until - now, timedelta(0)) if until.tzinfo else None
