"""Events as plain tuples while they are gathered, as Arrow columns when a commit is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collectors.receive.horizon import Horizon
from collectors.receive.identity import Keys, made
from collectors.records import stamp
from lake.tables import MESSAGE_EVENTS, OF_A_LIFE

#: A row of a span begins with these columns; its context, letter and salt (:mod:`collectors.receive.identity`) follow.
COLUMNS = (*OF_A_LIFE, "processing_seconds", "priority", "worker", "reason", "clock")
#: A row of the client begins with the same columns; its trace id, event id and key follow.
Row = tuple[Any, ...]
_FIRST_EXTRA = len(COLUMNS)
_PIECE = 1000
_OCCURRED_AT = COLUMNS.index("occurred_at")
_TYPES = [MESSAGE_EVENTS.schema.field(name).type for name in COLUMNS]


def span_table(rows: Sequence[Row], horizon: Horizon, source: str) -> tuple[pa.Table, Keys]:
    """The rows that were not seen before, as rows of ``message_events``, and their keys."""
    if not rows:
        return MESSAGE_EVENTS.schema.empty_table(), np.empty(0, dtype=np.uint64)
    columns = _columns(rows)
    event_ids, trace_ids, keys = made(*columns[_FIRST_EXTRA:])
    table = _table(columns, event_ids, trace_ids, source)
    fresh = horizon.new(keys)
    if fresh.all():
        return table, keys
    return table.filter(pa.array(fresh)), keys[fresh]


def client_table(rows: Sequence[Row], horizon: Horizon, source: str) -> tuple[pa.Table, Keys]:
    """The same of the client's rows."""
    keys = np.fromiter((row[-1] for row in rows), dtype=np.uint64, count=len(rows))
    fresh = horizon.new(keys)
    kept = list(compress(rows, fresh))
    if not kept:
        return MESSAGE_EVENTS.schema.empty_table(), keys[fresh]
    columns = _columns(kept)
    trace_ids = pa.array(columns[_FIRST_EXTRA], pa.string())
    event_ids = pa.array(columns[_FIRST_EXTRA + 1], pa.string())
    return _table(columns, event_ids, trace_ids, source), keys[fresh]


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    """The columns of ``rows``, of which there is one: piece by piece, as the processor's cache holds them."""
    columns: list[list[Any]] = [[] for _ in rows[0]]
    for begin in range(0, len(rows), _PIECE):
        for column, values in zip(columns, zip(*rows[begin : begin + _PIECE], strict=True), strict=True):
            column += values
    return columns


def _table(columns: list[Any], event_ids: pa.Array, trace_ids: pa.Array, source: str) -> pa.Table:
    arrays: dict[str, pa.Array] = {
        name: pa.array(values, kind) for name, values, kind in zip(COLUMNS, columns, _TYPES, strict=False)
    }
    arrays |= {"event_id": event_ids, "trace_id": trace_ids, **stamp(source, len(event_ids))}
    return pa.table([arrays[name] for name in MESSAGE_EVENTS.schema.names], schema=MESSAGE_EVENTS.schema)


def skewed(table: pa.Table) -> int:
    """How many of these events happened before their message was enqueued: a clock is off."""
    before = pc.less(table.column("occurred_at"), table.column("enqueued_at"))
    return int(pc.sum(before).as_py() or 0)


def split(rows: list[Row], latest: int) -> tuple[list[Row], list[Row]]:
    """``rows``, apart those that claim to have happened after ``latest``."""
    ahead = [row for row in rows if row[_OCCURRED_AT] > latest]
    return ([row for row in rows if row[_OCCURRED_AT] <= latest] if ahead else rows), ahead


def shown(row: Row) -> str:
    """``row`` as a record that can be replayed once its time has come."""
    record = {name: value for name, value in zip(COLUMNS, row, strict=False) if value is not None}
    for name in ("enqueued_at", "occurred_at"):
        if name in record:
            record[name] = datetime.fromtimestamp(record[name] / 1e6, UTC).isoformat()
    return json.dumps(record)
