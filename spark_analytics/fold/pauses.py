"""Messages that wait for a retry, or are delayed: marks as they come → when each pause begins and ends.

A pause lasts from the failure until the message's next attempt or its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lake.tables import FINISHING_TYPES
from spark_analytics.fold.lived import Name

#: How many seconds marks may come out of order; ended pauses are remembered for that long.
REMEMBERED = 900
#: The columns of marks that are read.
COLUMNS = ("broker", "queue", "subscriber", "tenant", "message_id", "event_type", "attempt", "occurred_at")

#: By (second, key): the change of how many wait for a retry, and of how many are delayed.
Edges = dict[tuple[int, Name], tuple[int, int]]


class Mark(NamedTuple):
    """A mark of one broker; ``second`` is unix time."""

    queue: str
    subscriber: str
    tenant: str
    message: str
    event_type: str
    attempt: int | None
    second: int

    @property
    def pauses(self) -> bool:
        """Whether a pause begins."""
        return self.event_type == "failed" or (self.event_type == "delayed" and (self.attempt or 0) >= 1)

    @property
    def number(self) -> int:
        """The attempt that the pause follows."""
        return 1 if self.attempt is None else self.attempt

    def ends(self, pause: Mark) -> bool:
        """Whether ``pause``, of the same message, is over with this."""
        if self.event_type in FINISHING_TYPES:
            return True
        follows = self.event_type in ("received", pause.event_type)
        return follows and self.attempt is not None and self.attempt > pause.number


@dataclass(slots=True)
class _Message:
    pauses: dict[tuple[str, str, int, int], tuple[Mark, int | None]] = field(default_factory=dict)
    enders: list[Mark] = field(default_factory=list)
    newest: int = 0

    @property
    def is_open(self) -> bool:
        return any(until is None for _, until in self.pauses.values())


class Pauses:
    """What is remembered of the messages of one broker that were paused, or ended lately."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str, str], _Message] = {}
        self._pruned_at = 0

    def add(self, marks: Iterable[Mark]) -> Edges:
        """What ``marks`` change."""
        edges: Edges = {}
        for mark in marks:
            message = self._messages.setdefault((mark.queue, mark.subscriber, mark.message), _Message())
            message.newest = max(message.newest, mark.second)
            for key, (pause, until) in message.pauses.items():
                if mark.ends(pause) and (until is None or mark.second < until):
                    _put(edges, pause, until, -1)
                    message.pauses[key] = pause, mark.second
                    _put(edges, pause, mark.second, 1)
            if mark.pauses:
                key = (mark.tenant, mark.event_type, mark.number, mark.second)
                if key not in message.pauses:
                    until = min((ender.second for ender in message.enders if ender.ends(mark)), default=None)
                    message.pauses[key] = mark, until
                    _put(edges, mark, until, 1)
            message.enders.append(mark)
        return edges

    def leave(self, queue: str) -> None:
        """Let go of all messages of ``queue``."""
        self._messages = {key: message for key, message in self._messages.items() if key[0] != queue}

    def forget(self, now: int) -> None:
        """Let go of messages without an open pause that were last heard of long before second ``now``."""
        if now - self._pruned_at > REMEMBERED // 10:
            self._pruned_at = now
            self._messages = {
                key: message
                for key, message in self._messages.items()
                if message.newest > now - REMEMBERED or message.is_open
            }


def _put(edges: Edges, pause: Mark, until: int | None, sign: int) -> None:
    if until is not None and until <= pause.second:
        return
    for second, step in ((pause.second, sign), (until, -sign)):
        if second is not None:
            key = (second, (pause.queue, pause.subscriber, pause.tenant))
            waiting, delayed = edges.get(key, (0, 0))
            failed = pause.event_type == "failed"
            edges[key] = (waiting + step, delayed) if failed else (waiting, delayed + step)


def marks_of(rows: pa.Table) -> list[Mark]:
    """Those of ``rows``, marks of one broker, that can begin or end a pause."""
    rows = rows.filter(pc.invert(first_attempts(rows)))
    columns: list[Any] = [rows.column(name).to_pylist() for name in COLUMNS[1:-1]]
    seconds = (rows.column("occurred_at").cast(pa.int64()).to_numpy() // 1_000_000).tolist()
    return [Mark(*row) for row in zip(*columns, seconds, strict=True)]


def first_attempts(rows: pa.Table) -> pa.ChunkedArray:
    """Of each of ``rows`` of marks whether it is a message's first attempt."""
    first = pc.and_(pc.equal(rows.column("event_type"), "received"), pc.equal(rows.column("attempt"), 1))
    return pc.fill_null(first, False)
