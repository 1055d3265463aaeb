"""Counts of lifecycle events as they are committed, for Prometheus: for each tenant, up to a bound.

It stands around bronze, where every source's records pass, so that what is counted is exactly what is durable.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from prometheus_client import Counter

from collectors.bronze import Around, Bronze
from lake.tables import EVENT_TYPES

OTHER = "other"
_KEYS = ["broker", "queue", "subscriber", "tenant"]
_EVENT = [*_KEYS, "event_type"]
_COUNTED = [*_EVENT, "count_all"]
Series = tuple[str | None, ...]


class Tally(Around):
    """Bronze that counts what is appended to it; everything else it hands on.

    The first ``most_series`` combinations of broker, queue, subscriber and tenant have series of their own. Later ones
    are counted as tenant ``other`` of their queue; as queue ``other`` of their broker where even those are too many.
    """

    def __init__(self, bronze: Bronze, counter: Counter, most_series: int) -> None:
        super().__init__(bronze)
        self._counter = counter
        self._most = most_series
        self._children: dict[Series, Counter] = {}
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
            grouped = rows.select(_EVENT).group_by(_EVENT, use_threads=False).aggregate([([], "count_all")])
            for *series, count in zip(*(grouped.column(name).to_pylist() for name in _COUNTED), strict=True):
                self._count(tuple(series), count)
        elif appended and rows.num_rows and name == "event_summaries":
            sums = [(event_type, "sum") for event_type in EVENT_TYPES]
            for row in rows.select([*_KEYS, *EVENT_TYPES]).group_by(_KEYS).aggregate(sums).to_pylist():
                for event_type in EVENT_TYPES:
                    self._count((*(row[key] for key in _KEYS), event_type), row[f"{event_type}_sum"] or 0)
        return appended

    def _count(self, series: Series, count: int) -> None:
        child = self._children.get(series)
        if child is None and count:
            child = self._child(series)
        if child is not None:
            child.inc(count)

    def _child(self, series: Series) -> Counter:
        """The counter of ``series`` (broker, queue, subscriber, tenant, event type), kept at hand if it is its own."""
        broker, queue, subscriber, tenant, event_type = (part or "" for part in series)
        key = (broker, queue, subscriber, tenant or "unknown")
        if self._has_room(self._own, key):
            child: Counter = self._counter.labels(*key, event_type)
            self._children[series] = child
            return child
        key = (broker, queue, "", OTHER)
        if not self._has_room(self._others, key):
            key = (broker, OTHER, "", OTHER)
        return self._counter.labels(*key, event_type)

    def _has_room(self, known: set[tuple[str, str, str, str]], key: tuple[str, str, str, str]) -> bool:
        if key not in known:
            if len(known) >= self._most:
                return False
            known.add(key)
        return True
