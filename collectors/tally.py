"""Counts of lifecycle events as they are committed, for Prometheus: for each tenant, up to a bound.

It stands around bronze, where every source's records pass, so that what is counted is exactly what is durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from prometheus_client import Counter

from collectors.bronze import Bronze
from lake.tables import EVENT_TYPES

OTHER = "other"
_KEYS = ["broker", "queue", "subscriber", "tenant"]


class Tally:
    """Bronze that counts what is appended to it; everything else it hands on.

    The first ``most_series`` combinations of broker, queue, subscriber and tenant have series of their own. Later ones
    are counted as tenant ``other`` of their queue; as queue ``other`` of their broker where even those are too many.
    """

    def __init__(self, bronze: Bronze, counter: Counter, most_series: int) -> None:
        self._bronze = bronze
        self._counter = counter
        self._most = most_series
        self._own: set[tuple[str, str, str, str]] = set()
        self._others: set[tuple[str, str, str, str]] = set()

    def append(
        self,
        name: str,
        rows: pa.Table,
        *,
        app_id: str | None = None,
        version: int | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> bool:
        """Append, and count unless it was there already."""
        appended = self._bronze.append(name, rows, app_id=app_id, version=version, positions=positions)
        if appended and rows.num_rows and name == "message_events":
            counted = (
                rows.select([*_KEYS, "event_type"]).group_by([*_KEYS, "event_type"]).aggregate([([], "count_all")])
            )
            for row in counted.to_pylist():
                self._count(row, row["event_type"], row["count_all"])
        elif appended and rows.num_rows and name == "event_summaries":
            sums = [(event_type, "sum") for event_type in EVENT_TYPES]
            for row in rows.select([*_KEYS, *EVENT_TYPES]).group_by(_KEYS).aggregate(sums).to_pylist():
                for event_type in EVENT_TYPES:
                    self._count(row, event_type, row[f"{event_type}_sum"] or 0)
        return appended

    def committed(self, name: str, app_id: str) -> int | None:
        """As bronze says."""
        return self._bronze.committed(name, app_id)

    def compact(self, name: str) -> None:
        """As bronze does."""
        self._bronze.compact(name)

    def scan(self, name: str, columns: list[str], since: datetime) -> Iterator[pa.RecordBatch]:
        """As bronze does."""
        return self._bronze.scan(name, columns, since)

    def state_path(self, *parts: str) -> Path:
        """As bronze says."""
        return self._bronze.state_path(*parts)

    def _count(self, row: Mapping[str, str | None], event_type: str, count: int) -> None:
        if not count:
            return
        broker, queue = row["broker"] or "", row["queue"] or ""
        key = (broker, queue, row["subscriber"] or "", row["tenant"] or "unknown")
        if not self._has_room(self._own, key):
            key = (broker, queue, "", OTHER)
            if not self._has_room(self._others, key):
                key = (broker, OTHER, "", OTHER)
        self._counter.labels(*key, event_type).inc(count)

    def _has_room(self, known: set[tuple[str, str, str, str]], key: tuple[str, str, str, str]) -> bool:
        if key not in known:
            if len(known) >= self._most:
                return False
            known.add(key)
        return True
