"""Dead letters: how many, since when, whose and why, ready for tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard.services.keys import QueueKey, Row
from dashboard.services.say import UNKNOWN, ago, count, instant, messages, percent

COLUMNS = ("In the last day", "Of all finished", "In the last minute", "First", "Last", "In dead-letter queues")
NO_REASON = "no reason was told"


@dataclass(frozen=True, slots=True)
class DeadQueue:
    """One queue that dead-letters, or whose dead letters wait; ``cells`` by :data:`COLUMNS`."""

    key: QueueKey
    going_on: bool
    cells: tuple[str, ...]


def dead_queues(rows: Iterable[Row], names: Mapping[QueueKey, str], now: datetime) -> tuple[DeadQueue, ...]:
    """The queues in ``rows`` that are known by name, in their order."""
    return tuple(_queue(row, now) for row in rows if QueueKey.of(row) in names)


def _queue(row: Row, now: datetime) -> DeadQueue:
    dead, finished = row["dead_lettered"], row["finished"]
    return DeadQueue(
        key=QueueKey.of(row),
        going_on=bool(row["lately"]),
        cells=(
            count(dead) if dead else "none seen",
            percent(dead / finished) if dead and finished else "–",
            count(row["lately"]),
            _when(row["first"], now),
            _when(row["last"], now),
            count(row["dlq_depth"]),
        ),
    )


def reason_cells(rows: Iterable[Row], now: datetime) -> list[tuple[str, ...]]:
    """(reason, messages, tenants, first, last, newest message) of each."""
    return [
        (
            row["reason"] or NO_REASON,
            count(row["messages"]),
            count(row["tenants"]),
            _when(row["first"], now),
            _when(row["last"], now),
            row["newest"],
        )
        for row in rows
    ]


def tenant_cells(rows: Iterable[Row], now: datetime) -> list[tuple[str, ...]]:
    """(tenant, messages, first, last) of each."""
    return [
        (row["tenant"], count(row["dead_lettered"]), _when(row["first"], now), _when(row["last"], now)) for row in rows
    ]


def headline(found: Sequence[DeadQueue], names: Mapping[QueueKey, str], rows: Sequence[Row]) -> str:
    """What the page says first: where it goes on, else what there was, else that there is nothing."""
    going = [one for one in found if one.going_on]
    if going:
        first = names[going[0].key]
        return (
            f"{first} dead-letters messages now"
            if len(going) == 1
            else f"{first} and {len(going) - 1} more dead-letter now"
        )
    known = [row for row in rows if QueueKey.of(row) in names]
    total = sum(row["dead_lettered"] or 0 for row in known)
    if total:
        many = sum(1 for row in known if row["dead_lettered"])
        where = f"on {names[QueueKey.of(known[0])]}" if many == 1 else f"on {many} queues"
        return f"{messages(total)} dead-lettered in the last day {where}, none in the last minute"
    held = sum(row["dlq_depth"] or 0 for row in known)
    return (
        f"Nothing was dead-lettered in the last day; {messages(held)} wait{'s' if held == 1 else ''}"
        if held
        else ("Nothing was dead-lettered in the last day")
    )


def _when(at: datetime | None, now: datetime) -> str:
    return UNKNOWN if at is None else f"{instant(at, now)}, {ago(at, now)}"
