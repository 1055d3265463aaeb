"""What an attempt's answer means for the message: pure, so that every case stands in a table of tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from alerts.store.health import DeliveryOutcome

FIRST_DELAY = timedelta(milliseconds=500)
LARGEST_DELAY = timedelta(minutes=5)
#: After an answer that only a person can change, such as 401 or 404: the page is kept, and told when they have.
FIRST_REFUSED_DELAY = timedelta(minutes=1)
LARGEST_REFUSED_DELAY = timedelta(hours=1)
#: No receiver may silence us for longer, whatever its Retry-After says.
LARGEST_RETRY_AFTER = timedelta(hours=1)
#: 4xx answers that are about the moment, not about the request.
_TEMPORARY = (408, 425, 429)
#: Somebody sends too much, whichever message it was.
TOO_MANY = 429
#: 4xx answers that are about this one body, which stays as it is.
_ABOUT_THE_BODY = (400, 411, 413, 415, 422)
GONE = 410
_SECONDS = re.compile(r"[0-9]+")
_LONGEST_HEADER = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """``retry_in`` None = the message is done with; ``disable`` = the receiver is gone for good."""

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
    forbidden: bool = False,
) -> Verdict:
    """What to do after attempt number ``attempts`` ended with HTTP ``status`` (None = no answer at all).

    ``age``: how long the message has been tried; ``jitter`` in [0, 1) spreads the retries of many messages;
    ``forbidden``: the address may not be sent to, which is a refusal of our own.
    """
    if status is not None and 200 <= status < 300:
        return Verdict("delivered")
    if status == GONE:
        return Verdict("refused", disable=True)
    if status in _ABOUT_THE_BODY:
        return Verdict("refused")
    if age >= retry_for:
        return Verdict("failed")
    if forbidden or (status is not None and status < 500 and status not in _TEMPORARY):
        return Verdict("refused", backoff(attempts, jitter, FIRST_REFUSED_DELAY, LARGEST_REFUSED_DELAY))
    delay = backoff(attempts, jitter)
    if retry_after is not None:
        delay = max(delay, min(retry_after, LARGEST_RETRY_AFTER))
    return Verdict("retry", delay)


def backoff(
    attempts: int, jitter: float, first: timedelta = FIRST_DELAY, largest: timedelta = LARGEST_DELAY
) -> timedelta:
    """Exponential, between half and all of ``first × 2^(attempts − 1)``, at most ``largest``."""
    full: timedelta = min(first * float(1 << min(max(attempts - 1, 0), 16)), largest)
    return full * (0.5 + jitter / 2)


def parse_retry_after(header: str | None, now: datetime) -> timedelta | None:
    """The pause that a Retry-After header asks for: seconds in ASCII digits, or an HTTP date (RFC 9110, 10.2.3).

    At most LARGEST_RETRY_AFTER; None if there is none to be read.
    """
    if header is None:
        return None
    header = header.strip()
    if _SECONDS.fullmatch(header):
        # Nine digits are thirty years; Python refuses to read thousands of them.
        return min(timedelta(seconds=int(header.lstrip("0")[:9] or 0)), LARGEST_RETRY_AFTER)
    if len(header) > _LONGEST_HEADER or not header.isascii():
        return None
    try:
        until = parsedate_to_datetime(header)
        return min(max(until - now, timedelta(0)), LARGEST_RETRY_AFTER) if until.tzinfo else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
