"""One lifecycle event as a call leaves it, and what becomes of it outside the application's thread."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sojourn.client import partial

#: What a call appends, as the application gave it: event_type, broker, queue, message_id, subscriber, tenant, attempt,
#: enqueued_at, occurred_at, processing_seconds, priority, trace_id, reason.
Raw = tuple[Any, ...]

#: An instant as applications have it: seconds since 1970, integer nanoseconds (``time.time_ns()``), or a datetime.
Instant = float | int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = 253_402_214_400_000_000  # 9999-12-31, microseconds
_NANOSECONDS = 10**17  # an integer instant from here on is one of time.time_ns()
_INT32 = 2**31
#: Longer texts (a whole traceback as the reason) are cut.
LONGEST_TEXT = 2048


class Event(NamedTuple):
    """An event in the types of the wire: text is text, instants are integer microseconds since 1970."""

    event_type: str
    broker: str
    queue: str
    message_id: str
    subscriber: str | None
    tenant: str | None
    attempt: int | None
    enqueued_at: int | None
    occurred_at: int
    processing_seconds: float | None
    priority: int | None
    trace_id: str | None
    reason: str | None


def is_mark(raw: Raw) -> bool:
    """Whether the analytics must remember this event by itself, so that it is summarised last."""
    subscriber = raw[4]
    named = subscriber is not None and not (type(subscriber) is str and subscriber == "")
    return partial.is_mark(raw[0], _whole(raw[6], 1), named)  # the attempt as :func:`judge` will have it


def judge(raw: Raw, broker: str) -> tuple[Event, bool]:
    """``raw`` in the types of the wire, and whether all of it was of use.

    What is of no use becomes null: a wrong attempt must not cost its event, nor an event its whole batch. ``broker`` is
    taken where the call named none.
    """
    kind, its_broker, queue, message_id, subscriber, tenant, attempt, enqueued, occurred, seconds, *rest = raw
    priority, trace_id, reason = rest
    sound = True
    enqueued_at = None
    if enqueued is not None:
        enqueued_at = micros(enqueued)
        sound = enqueued_at is not None
    occurred_at = micros(occurred)
    if occurred_at is None:
        occurred_at, sound = micros(datetime.now(UTC)) or 0, False
    if attempt is not None:
        attempt = _whole(attempt, 1)
        sound = sound and attempt is not None
    if seconds is not None:
        if not isinstance(seconds, int | float) or not (math.isfinite(seconds) and seconds >= 0):
            seconds, sound = None, False
        else:
            seconds = float(seconds)
    if priority is not None:
        priority = _whole(priority, -_INT32)
        sound = sound and priority is not None
    event = Event(
        kind,
        text(its_broker) or broker,
        text(queue) or "unknown",
        text(message_id) or "",
        text(subscriber),
        text(tenant),
        attempt,
        enqueued_at,
        occurred_at,
        seconds,
        priority,
        text(trace_id),
        text(reason),
    )
    return event, sound and bool(queue) and bool(event.message_id)


def micros(instant: object) -> int | None:
    """An instant in microseconds since 1970; None if it is none between 1970 and 9999. A naive datetime is UTC."""
    value: int
    if isinstance(instant, int) and not isinstance(instant, bool):
        value = int(instant // 1000 if instant >= _NANOSECONDS else instant * 1_000_000)
    elif isinstance(instant, float):
        if not math.isfinite(instant):
            return None
        value = round(instant * 1e6)
    elif isinstance(instant, datetime):
        aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
        since = aware - _EPOCH
        value = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    else:
        return None
    return value if 0 <= value < _END else None


def _whole(value: object, least: int) -> int | None:
    """A 32-bit integer of at least ``least``, in Python's own type; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < _INT32:
        return int(value)
    return None


def text(value: object) -> str | None:
    """``value`` as text that every JSON reader takes: no lone surrogates, bounded; None for None and for nothing."""
    if value is None or value == "":
        return None
    if type(value) is not str:
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if len(value) > LONGEST_TEXT:
        value = value[:LONGEST_TEXT]
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
