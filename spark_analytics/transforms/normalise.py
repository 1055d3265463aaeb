"""Events as they were written → the few columns that every metric is made of."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lake.tables import FINISHING_TYPES
from spark_analytics.transforms.codes import bucket_index_sql

_FINISHING = ", ".join(f"'{event_type}'" for event_type in FINISHING_TYPES)
_ADDS = "event_type = 'enqueued'"
_TAKES = f"event_type IN ({_FINISHING})"

#: Name → Spark SQL over message_events.
_BASE = {
    "broker": "broker",
    "queue": "queue",
    "subscriber": "coalesce(subscriber, '')",
    "tenant": "coalesce(tenant, 'unknown')",
    "message_id": "message_id",
    "event_type": "event_type",
    "attempt": "attempt",
    "occurred_at": "occurred_at",
    "second": "unix_seconds(occurred_at)",
    # Which age the event tells; null: none.
    "kind": "CASE WHEN event_type = 'received' AND attempt = 1 THEN 'first_attempt' "
    "WHEN event_type = 'received' AND attempt >= 2 THEN 'retry' WHEN event_type = 'completed' THEN 'completion' END",
    "lag_micros": "unix_micros(occurred_at) - unix_micros(enqueued_at)",
    # What is not a number must not poison a sum for good.
    "processing_seconds": "CASE WHEN event_type IN ('completed', 'failed') AND processing_seconds < 1e12D "
    "THEN greatest(processing_seconds, 0D) END",
    "net": f"CASE WHEN {_ADDS} THEN 1 WHEN {_TAKES} THEN -1 END",
    "cell_second": f"CASE WHEN {_ADDS} THEN unix_seconds(coalesce(enqueued_at, occurred_at)) "
    f"WHEN {_TAKES} THEN unix_seconds(enqueued_at) END",
}
# greatest() skips nulls: an unknown enqueue time must not become an age of zero.
_TELLS_AGE = "(event_type = 'received' OR kind IS NOT NULL) AND lag_micros IS NOT NULL"
_AGE = f"CASE WHEN {_TELLS_AGE} THEN greatest(lag_micros / 1e6D, 0D) END"


def normalise(events: DataFrame) -> DataFrame:
    """Columns of message_events → one row an event: keys without nulls, ages in seconds (≥ 0), backlog changes.

    ``age_seconds`` and ``processing_seconds`` are null where the event tells none; ``skewed`` marks an age that was
    below zero. ``net`` is +1 or −1 for what joins or leaves the backlog, by the ``cell_second`` it was enqueued in.
    """
    return (
        events.selectExpr(*(f"{sql} AS {name}" for name, sql in _BASE.items()))
        .selectExpr("*", f"{_AGE} AS age_seconds", "coalesce(lag_micros < 0, false) AS skewed")
        .selectExpr(
            "*",
            f"{bucket_index_sql('age_seconds')} AS age_index",
            f"{bucket_index_sql('processing_seconds')} AS processing_index",
        )
    )
