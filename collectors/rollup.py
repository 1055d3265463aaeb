"""Rolling events up into the summaries that the analytics only has to add: what a full buffer leaves.

A summary is a partial, so that a second that was rolled up reads like any other: only single messages can no longer be
told apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from collectors.records import Event, stamp
from lake.tables import EVENT_SUMMARIES
from sojourn.client.partial import SECOND, UNKNOWN_TENANT, Partial

#: queue, subscriber, tenant, second
Key = tuple[str, str, str, int]
_KEY = ("queue", "subscriber", "tenant", "bucket_start")


class Rollup:
    """Counted summaries of events, one for each second, queue, subscriber and tenant."""

    def __init__(self) -> None:
        self._partials: dict[Key, Partial] = {}
        self.events = 0

    def __len__(self) -> int:
        return len(self._partials)

    def add(self, events: Iterable[Event]) -> None:
        """Count ``events`` in."""
        for event in events:
            tenant = UNKNOWN_TENANT if event.tenant is None else event.tenant
            key = (event.queue, event.subscriber or "", tenant, event.occurred_at // SECOND)
            partial = self._partials.get(key)
            if partial is None:
                partial = self._partials[key] = Partial()
            partial.add(event)
            self.events += 1

    def table(self, broker: str, source: str) -> pa.Table:
        """The summaries as rows of ``event_summaries``."""
        count = len(self._partials)
        ours = stamp(source, count)
        rows = [
            {"broker": broker, "bucket_seconds": 1, **dict(zip(_KEY, (*names, second * SECOND), strict=True))}
            | partial.row()
            for (*names, second), partial in self._partials.items()
        ]
        columns = [
            ours.get(field.name) if field.name in ours else pa.array([row[field.name] for row in rows], type=field.type)
            for field in EVENT_SUMMARIES.schema
        ]
        return pa.table(columns, names=EVENT_SUMMARIES.schema.names)
