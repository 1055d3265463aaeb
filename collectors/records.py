"""What a tap tells about one message, and its shape in the bronze tables.

Events are plain tuples until a whole batch becomes Arrow columns: at tens of thousands a second, that is what counts.
Times are integers, microseconds since 1970, UTC.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa

from lake.schema import TIMESTAMP
from lake.tables import MESSAGE_EVENTS, REJECTED_RECORDS
from sojourn.client import partial

#: The longest piece of a rejected record that is kept.
RAW_LIMIT = 64 * 1024


class Event(NamedTuple):
    """One thing that happened to one message; broker, clock and source are the same for a whole batch."""

    event_type: str
    queue: str
    subscriber: str | None
    tenant: str | None
    message_id: str
    attempt: int | None
    enqueued_at: int | None
    occurred_at: int
    processing_seconds: float | None = None
    reason: str | None = None


class Rejected(NamedTuple):
    """A record that could not be read, at ``position`` of its source; ``times`` above 1 where it stands for several."""

    position: int
    received_at: int
    reason: str
    raw: str
    times: int = 1


def now_us() -> int:
    """The wall clock in microseconds: when we did something, never when something happened at the broker."""
    return time.time_ns() // 1000


def is_mark(event: Event) -> bool:
    """Whether the analytics must remember this event by itself, so that no summary may swallow it."""
    return partial.is_mark(event.event_type, event.attempt, bool(event.subscriber))


def event_id(broker: str, event: Event) -> str:
    """The same for the same event, whenever and by whomever it is told again.

    ``occurred_at`` is left out, which the default of the records' contract (and a replay's
    :func:`collectors.validate.default_event_id`) includes: a receipt that a tap knows only by a bound is still that one
    receipt, and each attempt of a message is numbered here. An event without its number in a file is told apart from
    others by its time alone.
    """
    subscriber = "" if event.subscriber is None else event.subscriber
    attempt = "" if event.attempt is None else event.attempt
    text = f"{broker}\0{event.queue}\0{subscriber}\0{event.message_id}\0{event.event_type}\0{attempt}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def events_table(events: Sequence[Event], broker: str, source: str) -> pa.Table:
    """``events`` as rows of ``message_events``."""
    count = len(events)
    columns: dict[str, pa.Array] = {}
    if events:
        by_field = zip(*events, strict=True)
        for name, values in zip(Event._fields, by_field, strict=True):
            columns[name] = pa.array(values, type=MESSAGE_EVENTS.schema.field(name).type)
    else:
        columns = {name: pa.array([], type=MESSAGE_EVENTS.schema.field(name).type) for name in Event._fields}
    columns["event_id"] = pa.array([event_id(broker, event) for event in events], type=pa.string())
    columns["broker"] = _same(broker, count)
    columns["clock"] = _same("broker", count)
    return pa.table(columns | stamp(source, count))


def rejected_table(rejected: Sequence[Rejected], source: str) -> pa.Table:
    """``rejected`` as rows of ``rejected_records``; what was longer than ``RAW_LIMIT`` is cut."""
    schema = REJECTED_RECORDS.schema
    columns = {
        "received_at": pa.array([record.received_at for record in rejected], type=TIMESTAMP),
        "reason": pa.array([record.reason for record in rejected], type=schema.field("reason").type),
        "raw": pa.array([_cut(record.raw) for record in rejected], type=schema.field("raw").type),
        "count": pa.array([record.times for record in rejected], type=schema.field("count").type),
    }
    return pa.table(columns | stamp(source, len(rejected)))


def stamp(source: str, count: int) -> dict[str, pa.Array]:
    """The columns that say who wrote a row, and when."""
    now = now_us()
    return {
        "source": _same(source, count),
        "ingested_at": pa.repeat(pa.scalar(now, type=TIMESTAMP), count),
        "ingest_date": pa.repeat(pa.scalar(_day(now), type=pa.date32()), count),
    }


def _day(moment: int) -> date:
    return datetime.fromtimestamp(moment / 1e6, UTC).date()


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, type=pa.string()), count)


def _cut(raw: str) -> str:
    if len(raw.encode("utf-8", "replace")) <= RAW_LIMIT:
        return raw
    return raw.encode("utf-8", "replace")[:RAW_LIMIT].decode("utf-8", "ignore")
