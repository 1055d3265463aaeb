"""Rows of ``event_summaries`` as our client sends them: checked against the table's own columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from collectors.ahead import TIMES, reason
from collectors.receive.values import LATEST_MICROS, MOST, Bad, count, pairs, text, whole, within
from collectors.records import stamp
from lake.schema import BACKLOG_CELLS, HISTOGRAM, TIMESTAMP
from lake.tables import EVENT_SUMMARIES

_OURS = ("source", "ingested_at", "ingest_date")
_COLUMNS = [field for field in EVENT_SUMMARIES.schema if field.name not in _OURS]
_NAMES = frozenset(field.name for field in _COLUMNS)


def summary(entry: dict[str, Any], latest: int = LATEST_MICROS) -> dict[str, Any]:
    """``entry`` in the types of the table, of nothing that is after ``latest``; Bad."""
    unknown = [name for name in entry if name not in _NAMES]
    if unknown:
        raise Bad(f"{str(unknown[0])[:100]}: not a column of event_summaries")
    row: dict[str, Any] = {}
    for field in _COLUMNS:
        value = entry.get(field.name)
        if field.name == "bucket_seconds" and value is None:
            value = 1
        if field.name == "subscriber":
            row["subscriber"] = "" if value in (None, "") else text(value, "subscriber")
        elif field.name == "tenant":
            row["tenant"] = "unknown" if value in (None, "") else text(value, "tenant")
        elif value is None and field.nullable:
            row[field.name] = None
        else:
            row[field.name] = _value(value, field)
    refused = ahead(row, latest)
    if refused is not None:
        raise Bad(refused)
    return row


def ahead(row: dict[str, Any], latest: int) -> str | None:
    """Why ``row`` is refused, where it claims to have happened after ``latest``."""
    return next((reason(name) for name in TIMES["event_summaries"] if (row[name] or 0) > latest), None)


def _value(value: Any, field: pa.Field) -> Any:
    kind, name = field.type, field.name
    if pa.types.is_string(kind):
        return text(value, name)
    if kind == TIMESTAMP:
        return whole(value, name, 0, LATEST_MICROS)
    if pa.types.is_integer(kind):
        return whole(value, name, 0, 2**31 if kind == pa.int32() else MOST)
    if kind == HISTOGRAM:
        return [
            {"index": whole(index, name, -(2**31), 2**31), "count": count(number, name)}
            for index, number in pairs(value, name)
        ]
    if kind == BACKLOG_CELLS:
        return [
            {
                "second": None if second is None else whole(second, name, 0, LATEST_MICROS // 1_000_000),
                "net": whole(net, name, -MOST, MOST),
            }
            for second, net in pairs(value, name)
        ]
    if type(value) not in (int, float) or not math.isfinite(within(value, name)):
        raise Bad(f"{name}: a number is expected")
    return float(value)


def summaries_table(rows: Sequence[dict[str, Any]], source: str) -> pa.Table:
    """``rows`` as rows of ``event_summaries``."""
    columns = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in _COLUMNS}
    return pa.table(columns | stamp(source, len(rows))).select(EVENT_SUMMARIES.schema.names)
