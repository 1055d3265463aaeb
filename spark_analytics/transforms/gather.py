"""Normalised events → one row for each (queue, subscriber, tenant, second), with all that gold needs of it.

One aggregate serves partials and marks alike: a micro-batch is read once and costs one Spark job.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from lake.histogram import ZERO_INDEX
from lake.tables import AGE_KINDS, EVENT_TYPES
from spark_analytics.transforms.codes import AGE_STRIDE, KIND_NUMBERS, UNKNOWN_SECOND

#: What the analytics read of message_events.
EVENT_COLUMNS = (
    "broker",
    "queue",
    "subscriber",
    "tenant",
    "message_id",
    "event_type",
    "attempt",
    "enqueued_at",
    "occurred_at",
    "processing_seconds",
)
KEY = ("broker", "queue", "subscriber", "tenant", "second")

_UNRECEIVED = "event_type IN ('dead_lettered', 'expired', 'sidelined') AND coalesce(attempt, 0) = 0"
#: Events that views must see one by one; see lake.tables.MARKS.
_MARKED = """
    event_type IN ('failed', 'delayed', 'dead_lettered', 'expired', 'sidelined')
    OR event_type = 'received' AND (attempt >= 2 OR attempt = 1 AND subscriber <> '')
    OR event_type = 'completed' AND (attempt >= 2 OR attempt IS NULL)
"""
_MARK = """named_struct(
    'message_id', message_id, 'event_type', event_type, 'attempt', attempt, 'occurred_at', occurred_at,
    'age_seconds', IF(event_type = 'received', age_seconds, NULL),
    'age_index', IF(event_type = 'received', age_index, NULL),
    'age_skewed', IF(event_type = 'received' AND age_seconds IS NOT NULL, skewed, NULL))"""
_KIND_BASES = " ".join(f"WHEN '{kind}' THEN {number * AGE_STRIDE}" for kind, number in KIND_NUMBERS.items())
_AGE_CODE = f"CASE kind {_KIND_BASES} END + age_index - ({ZERO_INDEX})"
_CELL_CODE = f"CASE WHEN net IS NOT NULL THEN coalesce(cell_second, {UNKNOWN_SECOND}L) * 2 + IF(net > 0, 1, 0) END"


def _age_sums(kind: str) -> dict[str, str]:
    of_kind = f"kind = '{kind}' AND age_seconds IS NOT NULL"
    age = f"IF(kind = '{kind}', age_seconds, NULL)"
    return {
        f"{kind}_age_count": f"count_if({of_kind})",
        f"{kind}_age_sum": f"sum({age})",
        f"{kind}_age_max": f"max({age})",
        f"{kind}_age_skewed": f"count_if({of_kind} AND skewed)",
    }


#: Column → aggregate. Sums, counts and maxima carry their final names; the arrays are codes of ``transforms.codes``.
_AGGREGATES = {
    "newest_occurred_at": "max(occurred_at)",
    **{event_type: f"count_if(event_type = '{event_type}')" for event_type in EVENT_TYPES},
    "started": "count_if(event_type = 'received' AND coalesce(attempt, 1) = 1)",
    "retries": "count_if(event_type = 'received' AND attempt >= 2)",
    "finished_unreceived": f"count_if({_UNRECEIVED})",
    **{name: sql for kind in AGE_KINDS for name, sql in _age_sums(kind).items()},
    "processing_count": "count(processing_seconds)",
    "processing_sum": "sum(processing_seconds)",
    "processing_max": "max(processing_seconds)",
    "age_codes": f"collect_list({_AGE_CODE})",
    "processing_codes": "collect_list(processing_index)",
    "cell_codes": f"collect_list({_CELL_CODE})",
    "marked": f"collect_list(CASE WHEN {_MARKED} THEN {_MARK} END)",
}


def gather(normalised: DataFrame) -> DataFrame:
    """Rows of :func:`normalise` → one row a KEY: counts, sums and maxima; buckets, cells and marks as arrays."""
    columns = ", ".join((*KEY, *(f"{sql} AS {name}" for name, sql in _AGGREGATES.items())))
    statement = f"SELECT {columns} FROM {{normalised}} GROUP BY {', '.join(KEY)}"
    # One statement: built column by column it would cost a round trip to Java for each expression.
    return normalised.sparkSession.sql(statement, args=None, normalised=normalised)
