"""One message's life, read from its events: the words and the small judgements that the reference is made of.

Times are whole microseconds since 1970 inside, aware datetimes outside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

Row = dict[str, Any]

ENDINGS = ("completed", "dead_lettered", "expired", "sidelined")
SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Queue(NamedTuple):
    """One consumer's queue; ``subscriber`` '' is the unnamed one."""

    broker: str
    queue: str
    subscriber: str


class Key(NamedTuple):
    """One tenant in one consumer's queue."""

    queue: Queue
    tenant: str


class Event(NamedTuple):
    """An event as one consumer lives it; ``told`` is the second that it counts for, where that is not its own."""

    queue: Queue
    tenant: str
    message: str
    type: str
    attempt: int | None
    enqueued: int | None
    at: int
    processing: float | None
    told: int | None = None

    @property
    def second(self) -> int:
        return self.at // SECOND if self.told is None else self.told

    @property
    def age(self) -> int | None:
        """Microseconds since the message was enqueued, below zero under clock skew."""
        return None if self.enqueued is None else self.at - self.enqueued


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def without_duplicates(events: Iterable[Row]) -> list[Row]:
    """Each event once: by its id, or by what its id would be made of."""
    kept: dict[Any, Row] = {}
    for event in events:
        parts = ("broker", "queue", "subscriber", "message_id", "event_type", "attempt", "occurred_at")
        kept.setdefault(event.get("event_id") or tuple(event.get(part) for part in parts), event)
    return list(kept.values())


def numbered(events: Iterable[Row]) -> list[Row]:
    """``events`` in the order of their arrival, with the attempts that nobody numbered.

    The n-th receipt of a message by a subscriber is attempt n; what follows belongs to it, until the message has ended.
    """
    begun: dict[tuple[Any, ...], int] = {}
    told = []
    for event in events:
        if event.get("attempt") is None and event["event_type"] != "enqueued":
            key = tuple(event.get(name) for name in ("broker", "queue", "subscriber", "message_id"))
            number = begun.pop(key, 0) + (event["event_type"] == "received")
            if number:
                event = {**event, "attempt": number}
                if event["event_type"] not in ENDINGS:
                    begun[key] = number
        told.append(event)
    return told


def nearest_rank(values: list[float], q: Fraction) -> float:
    """The exact quantile: the smallest value that at least the share ``q`` of the values do not exceed."""
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


def read_event(event: Row) -> Event:
    enqueued = event.get("enqueued_at")
    return Event(
        Queue(event["broker"], event["queue"], event.get("subscriber") or ""),
        event.get("tenant") or "unknown",
        event["message_id"],
        event["event_type"],
        event.get("attempt"),
        None if enqueued is None else micros(enqueued),
        micros(event["occurred_at"]),
        event.get("processing_seconds"),
    )


def fanned_out(events: list[Event]) -> list[Event]:
    """What is enqueued for nobody by name counts for every subscriber that the queue names anywhere."""
    consumers: dict[tuple[str, str], set[str]] = {}
    for event in events:
        if event.queue.subscriber or event.type != "enqueued":
            consumers.setdefault(event.queue[:2], set()).add(event.queue.subscriber)
    lived = []
    for event in events:
        named = consumers.get(event.queue[:2], set())
        for_all = event.type == "enqueued" and not event.queue.subscriber and named != set()
        for subscriber in named if for_all else {event.queue.subscriber}:
            lived.append(event._replace(queue=event.queue._replace(subscriber=subscriber)))
    return lived


def processing_times(events: Iterable[Event]) -> list[float]:
    """Processing times of attempts that ended, in seconds."""
    return [e.processing for e in events if e.type in ("completed", "failed") and e.processing is not None]


def is_waiting(events: list[Event]) -> bool:
    """Whether a message (its events so far) failed and neither was received again nor has ended."""
    failed = [event.attempt or 1 for event in events if event.type == "failed"]
    if not failed or any(event.type in ENDINGS for event in events):
        return False
    return not any(event.type == "received" and (event.attempt or 0) > max(failed) for event in events)


def is_delayed(events: list[Event]) -> bool:
    """Whether a message (its events so far) was delayed and neither was received again nor has ended."""
    delayed = [event.attempt or 0 for event in events if event.type == "delayed"]
    if not delayed or any(event.type in ENDINGS for event in events):
        return False
    return not any(event.type == "received" and (event.attempt or 1) > max(delayed) for event in events)


def oldest_second(past: list[Event]) -> int | None:
    """The second in which the oldest message that is still there was enqueued.

    Whoever left without telling its enqueue time is taken to have been the oldest.
    """
    there = Counter(
        (event.at if event.enqueued is None else event.enqueued) // SECOND for event in past if event.type == "enqueued"
    )
    gone = [event for event in past if event.type in ENDINGS]
    there.subtract(event.enqueued // SECOND for event in gone if event.enqueued is not None)
    unknown = sum(event.enqueued is None for event in gone)
    for second in sorted(second for second, count in there.items() if count > 0):
        if there[second] > unknown:
            return second
        unknown -= there[second]
    return None


def named(queue: Queue) -> Row:
    return {"broker": queue.broker, "queue": queue.queue, "subscriber": queue.subscriber or None}


def histogram_bucket(age: int) -> int:
    """The histogram's bucket of an age in microseconds: the index whose bucket (2**(i/64), 2**((i+1)/64)] holds it."""
    if age < 1:
        return -2048
    seconds = age / SECOND
    index = math.floor(64 * math.log2(seconds)) - 2
    while not 2 ** (index / 64) < seconds <= 2 ** ((index + 1) / 64):
        index += 1
    return index


def age_columns(ages: list[int]) -> Row:
    clamped = [max(0, age) for age in ages]
    seconds = [age / SECOND for age in clamped]
    return {
        "count": len(ages),
        "mean_seconds": sum(clamped) / len(ages) / SECOND,
        "p50_seconds": nearest_rank(seconds, Fraction(50, 100)),
        "p90_seconds": nearest_rank(seconds, Fraction(90, 100)),
        "p99_seconds": nearest_rank(seconds, Fraction(99, 100)),
        "max_seconds": max(seconds),
        "skewed": sum(age < 0 for age in ages),
        "histogram": dict(Counter(histogram_bucket(age) for age in clamped)),
    }
