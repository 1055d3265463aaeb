"""Counted summaries of events: what a full buffer makes of them, so that it stays bounded and every count exact.

The shape is that of the lake's table ``event_summaries``. Where even the summaries outgrow their bound, they coarsen:
first in time, then in tenant, then in queue. No count, sum or histogram is ever lost by that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from sojourn.client.events import EVENT_TYPES, FINISHING_TYPES, Event

#: Base-2 exponential histograms, OpenTelemetry's, at scale 6 (relative error 0.54 %); as in ``lake.histogram``.
BUCKETS_PER_OCTAVE = 64
SMALLEST = 1e-6
ZERO_INDEX = -2048

AGE_KINDS = ("first_attempt", "retry", "completion")
_SECOND = 1_000_000
_COUNTS = (*EVENT_TYPES, "started", "retries", "finished_unreceived")
#: The seconds that one summary stands for, step by step as the bound is met; then tenants, then queues are folded.
STEPS = (1, 8, 64, 512, 4096)
FOLD_TENANTS, FOLD_QUEUES = len(STEPS), len(STEPS) + 1
OTHER = "other"

#: broker, queue, subscriber, tenant, second
Key = tuple[str, str, str, str, int]


def bucket_index(seconds: float) -> int:
    """The index of the histogram bucket that holds ``seconds`` (≥ 0); ``ZERO_INDEX`` below a microsecond."""
    if seconds < SMALLEST:
        return ZERO_INDEX
    return math.ceil(math.log2(seconds) * BUCKETS_PER_OCTAVE) - 1


@dataclass(slots=True)
class Spread:
    """Count, sum, largest and histogram of durations in seconds; ``skewed`` ones were below zero and entered as 0."""

    count: int = 0
    total: float = 0.0
    largest: float | None = None
    skewed: int = 0
    histogram: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Count one duration in."""
        if seconds < 0:
            self.skewed += 1
            seconds = 0.0
        self.count += 1
        self.total += seconds
        if self.largest is None or seconds > self.largest:
            self.largest = seconds
        index = bucket_index(seconds)
        self.histogram[index] = self.histogram.get(index, 0) + 1

    def merge(self, other: Spread) -> None:
        """Count all of ``other`` in."""
        self.count += other.count
        self.total += other.total
        self.skewed += other.skewed
        if other.largest is not None:
            self.largest = other.largest if self.largest is None else max(self.largest, other.largest)
        for index, count in other.histogram.items():
            self.histogram[index] = self.histogram.get(index, 0) + count


@dataclass(slots=True)
class Cell:
    """What happened in one second to one tenant of one queue and subscriber."""

    events: int = 0
    newest: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)
    backlog: dict[int | None, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return 1 + len(self.backlog) + sum(1 + len(spread.histogram) for spread in self.spreads.values())

    def count(self, name: str) -> None:
        """One more of ``name``."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def spread(self, of: str) -> Spread:
        """The durations called ``of``; made when the first comes."""
        spread = self.spreads.get(of)
        if spread is None:
            spread = self.spreads[of] = Spread()
        return spread

    def add(self, event: Event) -> None:
        """Count ``event`` in."""
        kind, attempt, enqueued_at, occurred_at = event.event_type, event.attempt, event.enqueued_at, event.occurred_at
        self.events += 1
        self.newest = max(self.newest, occurred_at)
        self.count(kind)
        age_kind = None
        if kind == "received":
            first = attempt is None or attempt == 1
            self.count("started" if first else "retries")
            if attempt is not None:
                age_kind = "first_attempt" if first else "retry"
        elif kind == "completed":
            age_kind = "completion"
        elif kind in FINISHING_TYPES and not attempt:
            self.count("finished_unreceived")
        if age_kind and enqueued_at is not None:
            self.spread(f"{age_kind}_age").add((occurred_at - enqueued_at) / _SECOND)
        if kind in ("completed", "failed") and event.processing_seconds is not None:
            self.spread("processing").add(event.processing_seconds)
        if kind == "enqueued":
            self._net((occurred_at if enqueued_at is None else enqueued_at) // _SECOND, 1)
        elif kind in FINISHING_TYPES:
            self._net(None if enqueued_at is None else enqueued_at // _SECOND, -1)

    def merge(self, other: Cell, seconds_known: bool = True) -> None:
        """Count all of ``other`` in; without ``seconds_known`` the backlog forgets when its messages were enqueued."""
        self.events += other.events
        self.newest = max(self.newest, other.newest)
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for of, spread in other.spreads.items():
            self.spread(of).merge(spread)
        for second, net in other.backlog.items():
            self._net(second if seconds_known else None, net)

    def _net(self, second: int | None, net: int) -> None:
        net += self.backlog.get(second, 0)
        if net:
            self.backlog[second] = net
        else:
            self.backlog.pop(second, None)

    def row(self, key: Key) -> dict[str, Any]:
        """This cell as a row of ``event_summaries``: instants in microseconds, histograms and cells as pairs."""
        broker, queue, subscriber, tenant, second = key
        row: dict[str, Any] = {
            "broker": broker,
            "queue": queue,
            "subscriber": subscriber,
            "tenant": tenant,
            "bucket_start": second * _SECOND,
            "bucket_seconds": 1,
            "newest_occurred_at": self.newest,
        }
        for name in _COUNTS:
            row[name] = self.counts.get(name, 0)
        for of in (*(f"{kind}_age" for kind in AGE_KINDS), "processing"):
            spread = self.spreads.get(of) or Spread()
            row[f"{of}_count"], row[f"{of}_sum"], row[f"{of}_max"] = spread.count, spread.total, spread.largest
            if of != "processing":
                row[f"{of}_skewed"] = spread.skewed
            row[f"{of}_histogram"] = [[index, count] for index, count in sorted(spread.histogram.items())]
        row["backlog_cells"] = [[second, net] for second, net in self.backlog.items()]
        return row


class Rollup:
    """Summaries of events, one for each second, broker, queue, subscriber and tenant, of at most ``bound`` entries.

    An entry is a cell, a histogram's bucket or a second of its backlog. ``level`` says how far it had to coarsen: see
    :data:`STEPS`. A coarsened summary keeps ``bucket_seconds`` 1: it tells of more than it names, but each count once.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._cells: dict[Key, Cell] = {}
        self._added = 0
        self.events = 0
        self.level = 0

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def entries(self) -> int:
        """How many entries it holds."""
        return sum(map(len, self._cells.values()))

    def add(self, event: Event) -> None:
        """Count ``event`` in."""
        key = self._key(
            (
                event.broker,
                event.queue,
                event.subscriber or "",
                event.tenant or "unknown",
                event.occurred_at // _SECOND,
            )
        )
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell()
        cell.add(event)
        self.events += 1
        # One event adds at most six entries: the exact number is worked out when it may have passed the bound.
        self._added += 6
        if self._added > self._bound:
            self._fit()

    def take(self, most: int) -> tuple[list[dict[str, Any]], int]:
        """Take out the oldest summaries, at most ``most``, as rows; and how many events they stand for."""
        rows, events = [], 0
        for key in list(self._cells)[:most]:
            cell = self._cells.pop(key)
            rows.append(cell.row(key))
            events += cell.events
        self.events -= events
        if not self._cells:
            self.level = self._added = 0
        return rows, events

    def _fit(self) -> None:
        while (entries := self.entries) > self._bound * 3 // 4 and self.level < FOLD_QUEUES:
            self.level += 1
            cells: dict[Key, Cell] = {}
            for key, cell in self._cells.items():
                cells.setdefault(self._key(key), Cell()).merge(cell, self.level < FOLD_QUEUES)
            self._cells = cells
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
