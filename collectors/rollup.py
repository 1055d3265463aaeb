"""Rolling events up into the summaries that the analytics only has to add: what a full buffer leaves.

Shape and definitions are those of the partial aggregates that Spark makes of single events, so that a second that was
rolled up reads like any other: only single messages can no longer be told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from collectors.records import Event, stamp
from lake.histogram import bucket_index
from lake.tables import AGE_KINDS, BACKLOG_CELLS, EVENT_SUMMARIES, EVENT_TYPES, FINISHING_TYPES, HISTOGRAM, TIMESTAMP

_SECOND = 1_000_000
Key = tuple[str, str, str, int]


@dataclass(slots=True)
class _Spread:
    """Count, sum, largest and histogram of durations in seconds; ``skewed`` ones were below zero and entered as 0."""

    count: int = 0
    total: float = 0.0
    largest: float | None = None
    skewed: int = 0
    histogram: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        if seconds < 0:
            self.skewed += 1
            seconds = 0.0
        self.count += 1
        self.total += seconds
        self.largest = seconds if self.largest is None else max(self.largest, seconds)
        self.histogram[bucket_index(seconds)] += 1

    def buckets(self) -> list[dict[str, int]]:
        return [{"index": index, "count": count} for index, count in sorted(self.histogram.items())]


@dataclass(slots=True)
class _Cell:
    """What happened in one second to one tenant of one queue and subscriber."""

    newest: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    spreads: dict[str, _Spread] = field(default_factory=dict)
    backlog: Counter[int | None] = field(default_factory=Counter)

    def spread(self, of: str) -> _Spread:
        """The durations called ``of``; made when the first comes, for most cells have few kinds."""
        spread = self.spreads.get(of)
        if spread is None:
            spread = self.spreads[of] = _Spread()
        return spread


_NONE = _Spread()


class Rollup:
    """Counted summaries of events, one for each second, queue, subscriber and tenant."""

    def __init__(self) -> None:
        self._cells: dict[Key, _Cell] = {}
        self.events = 0

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, events: Iterable[Event]) -> None:
        """Count ``events`` in."""
        for event in events:
            self._add(event)

    def _add(self, event: Event) -> None:
        key = (event.queue, event.subscriber or "", event.tenant or "unknown", event.occurred_at // _SECOND)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        self.events += 1
        kind, attempt = event.event_type, event.attempt
        cell.counts[kind] += 1
        cell.newest = max(cell.newest, event.occurred_at)
        age_kind = None
        if kind == "received":
            first = attempt is None or attempt == 1
            cell.counts["started" if first else "retries"] += 1
            if attempt is not None:
                age_kind = "first_attempt" if first else "retry"
        elif kind == "completed":
            age_kind = "completion"
        elif kind in FINISHING_TYPES and not attempt:
            cell.counts["finished_unreceived"] += 1
        if age_kind and event.enqueued_at is not None:
            cell.spread(f"{age_kind}_age").add((event.occurred_at - event.enqueued_at) / _SECOND)
        if kind in ("completed", "failed") and event.processing_seconds is not None:
            cell.spread("processing").add(event.processing_seconds)
        if kind == "enqueued":
            since = event.occurred_at if event.enqueued_at is None else event.enqueued_at
            cell.backlog[since // _SECOND] += 1
        elif kind in FINISHING_TYPES:
            cell.backlog[None if event.enqueued_at is None else event.enqueued_at // _SECOND] -= 1

    def table(self, broker: str, source: str) -> pa.Table:
        """The summaries as rows of ``event_summaries``."""
        keys, cells = list(self._cells), list(self._cells.values())
        columns: dict[str, pa.Array] = {
            "broker": pa.array([broker] * len(keys), type=pa.string()),
            "queue": pa.array([key[0] for key in keys], type=pa.string()),
            "subscriber": pa.array([key[1] for key in keys], type=pa.string()),
            "tenant": pa.array([key[2] for key in keys], type=pa.string()),
            "bucket_start": pa.array([key[3] * _SECOND for key in keys], type=TIMESTAMP),
            "bucket_seconds": pa.array([1] * len(keys), type=pa.int32()),
            "newest_occurred_at": pa.array([cell.newest for cell in cells], type=TIMESTAMP),
        }
        for name in (*EVENT_TYPES, "started", "retries", "finished_unreceived"):
            columns[name] = pa.array([cell.counts[name] for cell in cells], type=pa.int64())
        for of in (*(f"{kind}_age" for kind in AGE_KINDS), "processing"):
            spreads = [cell.spreads.get(of, _NONE) for cell in cells]
            columns |= _spread_columns(of, spreads)
            if of != "processing":
                columns[f"{of}_skewed"] = pa.array([spread.skewed for spread in spreads], type=pa.int64())
        columns["backlog_cells"] = pa.array([_nets(cell.backlog) for cell in cells], type=BACKLOG_CELLS)
        table = pa.table(columns | stamp(source, len(keys)))
        return table.select(EVENT_SUMMARIES.schema.names)


def _spread_columns(prefix: str, spreads: list[_Spread]) -> dict[str, pa.Array]:
    return {
        f"{prefix}_count": pa.array([spread.count for spread in spreads], type=pa.int64()),
        f"{prefix}_sum": pa.array([spread.total for spread in spreads], type=pa.float64()),
        f"{prefix}_max": pa.array([spread.largest for spread in spreads], type=pa.float64()),
        f"{prefix}_histogram": pa.array([spread.buckets() for spread in spreads], type=HISTOGRAM),
    }


def _nets(backlog: Counter[int | None]) -> list[dict[str, Any]]:
    return [{"second": second, "net": net} for second, net in backlog.items() if net]
