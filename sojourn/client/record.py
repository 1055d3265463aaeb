"""The call that an application makes when something happens to a message: one append, and nothing else."""

from __future__ import annotations

import time
from typing import Protocol

from sojourn.client.buffer import Buffer
from sojourn.client.events import Instant


class Record(Protocol):
    """Tells that something happened to one message; returns at once, and never raises for what it is given.

    ``message_id`` is unique in its broker and queue. ``attempt`` is 1 for the first delivery; None leaves it to the
    order of arrival. ``enqueued_at`` and ``occurred_at`` (default: now) are seconds since 1970, integer nanoseconds as
    ``time.time_ns()`` gives them, or datetimes. ``processing_seconds`` belongs to ``completed`` and ``failed``.
    """

    def __call__(
        self,
        queue: str,
        message_id: str,
        *,
        subscriber: str | None = None,
        tenant: str | None = None,
        attempt: int | None = None,
        enqueued_at: Instant | None = None,
        occurred_at: Instant | None = None,
        processing_seconds: float | None = None,
        priority: int | None = None,
        trace_id: str | None = None,
        reason: str | None = None,
        broker: str | None = None,
    ) -> None: ...


def recorder_of(kind: str, buffer: Buffer) -> Record:
    """The call for events of one ``kind``. A closure: its names are read faster than an object's attributes."""
    events, capacity, full = buffer.events, buffer.capacity, buffer.full
    append, now = events.append, time.time_ns

    def record(
        queue: str,
        message_id: str,
        *,
        subscriber: str | None = None,
        tenant: str | None = None,
        attempt: int | None = None,
        enqueued_at: Instant | None = None,
        occurred_at: Instant | None = None,
        processing_seconds: float | None = None,
        priority: int | None = None,
        trace_id: str | None = None,
        reason: str | None = None,
        broker: str | None = None,
    ) -> None:
        append(
            (
                kind,
                broker,
                queue,
                message_id,
                subscriber,
                tenant,
                attempt,
                enqueued_at,
                now() if occurred_at is None else occurred_at,
                processing_seconds,
                priority,
                trace_id,
                reason,
            )
        )
        if len(events) > capacity:
            full()

    record.__name__ = record.__qualname__ = kind
    record.__doc__ = Record.__doc__
    return record
