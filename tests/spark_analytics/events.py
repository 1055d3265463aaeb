"""Events for the transforms' tests: short to write, complete to store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from lake.tables import MESSAGE_EVENTS

Row = dict[str, Any]

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """The instant ``seconds`` after the tests' epoch."""
    return START + timedelta(microseconds=round(seconds * 1_000_000))


def event(event_type: str, at: float = 0.0, *, enqueued: float | None = 0.0, **more: Any) -> Row:
    """An event ``at`` seconds after START, of a message enqueued at ``enqueued``; None: nobody knows when."""
    return {
        "event_type": event_type,
        "broker": "nats",
        "queue": "orders",
        "message_id": "m1",
        "tenant": "acme",
        "occurred_at": after(at),
        "enqueued_at": None if enqueued is None else after(enqueued),
        **more,
    }


def bronze(events: Sequence[Row]) -> pa.Table:
    """The events as rows of message_events."""
    common = {"clock": "broker", "source": "test", "ingested_at": START, "ingest_date": START.date()}
    rows = [{"event_id": f"e{number}", **common, **row} for number, row in enumerate(events)]
    return pa.Table.from_pylist(rows, MESSAGE_EVENTS.schema)
