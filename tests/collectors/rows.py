"""Rows of bronze as any collector writes them."""

from __future__ import annotations

import pyarrow as pa

from collectors.records import Event, events_table, now_us
from collectors.rollup import Rollup


def arrivals(queue: str, tenants: list[str | None]) -> list[Event]:
    """One message enqueued now for each of ``tenants``."""
    now = now_us()
    return [Event("enqueued", queue, None, tenant, str(n), None, now, now) for n, tenant in enumerate(tenants)]


def event_rows(queue: str, tenants: list[str | None]) -> pa.Table:
    """The arrivals as rows of ``message_events``."""
    return events_table(arrivals(queue, tenants), "mq", "test")


def summary_rows(queue: str, tenants: list[str | None]) -> pa.Table:
    """The arrivals as rows of ``event_summaries``."""
    rollup = Rollup()
    rollup.add(arrivals(queue, tenants))
    return rollup.table("mq", "test")
