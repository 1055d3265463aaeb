"""Counted summaries of events: what a full buffer makes of them, so that it stays bounded and every count exact.

The shape is that of the lake's table ``event_summaries``. Where even the summaries outgrow their bound, they coarsen:
first in time, then in tenant, then in queue. No count, sum or histogram is ever lost by that.
"""

from __future__ import annotations

from typing import Any

from sojourn.client.events import Event
from sojourn.client.partial import SECOND, UNKNOWN_TENANT, Partial

#: The seconds that one summary stands for, step by step as the bound is met; then tenants, then queues are folded.
STEPS = (1, 8, 64, 512, 4096)
FOLD_TENANTS, FOLD_QUEUES = len(STEPS), len(STEPS) + 1
OTHER = "other"

#: broker, queue, subscriber, tenant, second
Key = tuple[str, str, str, str, int]


class Rollup:
    """Summaries of events, one for each second, broker, queue, subscriber and tenant, of at most ``bound`` entries.

    An entry is a summary, a histogram's bucket or a second of its backlog. ``level`` says how far it had to coarsen:
    see :data:`STEPS`. A coarsened summary keeps ``bucket_seconds`` 1: it tells of more than it names, but each count
    once.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._partials: dict[Key, Partial] = {}
        self._added = 0
        self.events = 0
        self.level = 0

    def __len__(self) -> int:
        return len(self._partials)

    @property
    def entries(self) -> int:
        """How many entries it holds."""
        return sum(partial.entries for partial in self._partials.values())

    def add(self, event: Event) -> None:
        """Count ``event`` in."""
        key = self._key(
            (
                event.broker,
                event.queue,
                event.subscriber or "",
                UNKNOWN_TENANT if event.tenant is None else event.tenant,
                event.occurred_at // SECOND,
            )
        )
        partial = self._partials.get(key)
        if partial is None:
            partial = self._partials[key] = Partial()
        partial.add(event)
        self.events += 1
        # One event adds at most six entries: the exact number is worked out when it may have passed the bound.
        self._added += 6
        if self._added > self._bound:
            self._fit()

    def take(self, most: int) -> tuple[list[dict[str, Any]], int]:
        """Take out the oldest summaries, at most ``most``, as rows; and how many events they stand for."""
        rows, events = [], 0
        for key in list(self._partials)[:most]:
            partial = self._partials.pop(key)
            rows.append(_row(key, partial))
            events += partial.events
        self.events -= events
        if not self._partials:
            self.level = self._added = 0
        return rows, events

    def _fit(self) -> None:
        while (entries := self.entries) > self._bound * 3 // 4 and self.level < FOLD_QUEUES:
            self.level += 1
            coarser: dict[Key, Partial] = {}
            for key, partial in self._partials.items():
                coarser.setdefault(self._key(key), Partial()).merge(partial, self.level < FOLD_QUEUES)
            self._partials = coarser
        self._added = min(entries, self._bound * 3 // 4)

    def _key(self, key: Key) -> Key:
        if not self.level:
            return key
        broker, queue, subscriber, tenant, second = key
        step = STEPS[min(self.level, len(STEPS) - 1)]
        if self.level >= FOLD_TENANTS:
            tenant = OTHER
        if self.level >= FOLD_QUEUES:
            broker, queue, subscriber = OTHER, OTHER, ""
        return broker, queue, subscriber, tenant, second - second % step


def _row(key: Key, partial: Partial) -> dict[str, Any]:
    """A row of ``event_summaries``: instants in microseconds, histograms and cells as pairs."""
    broker, queue, subscriber, tenant, second = key
    names: dict[str, Any] = {"broker": broker, "queue": queue, "subscriber": subscriber, "tenant": tenant}
    return names | {"bucket_start": second * SECOND, "bucket_seconds": 1} | partial.row()
