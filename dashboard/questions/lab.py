"""What of a lake can be run again: how many messages came to a queue."""

from __future__ import annotations

from datetime import datetime

from dashboard.queries import of_queue
from dashboard.services.keys import QueueKey
from lake.sql.parameters import literal


def counted(key: QueueKey, since: datetime, until: datetime) -> str:
    """The messages that came between the two; they are told once, whoever subscribes."""
    mine = of_queue(QueueKey(key.broker, key.queue)).replace("subscriber IS NULL", "TRUE")
    return f"""
    SELECT CAST(SUM(enqueued) AS BIGINT) AS messages FROM partials
    WHERE {mine} AND bucket_start >= {literal(since)} AND bucket_start < {literal(until)}"""
