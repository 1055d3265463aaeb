"""Groups of tenants, ready for a table: those that were declared, and those that began to send together.

What began together is found by the law that entitlements and fair orders find it by (:mod:`sojourn.client.groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from pydantic import BaseModel, ConfigDict

from dashboard.services.keys import QueueKey, Row
from dashboard.services.say import UNKNOWN, age, count, instant, percent, rate
from sojourn.client.groups import Onsets, common

#: Groups that a page shows.
MOST = 25
COLUMNS = ("Tenants", "Backlog", "Share of backlog", "Share of arrivals", "In flight", "Oldest", "In → out", "Names")


class Declared(BaseModel):
    """A group that an entitlement names: all tenants of a queue whose names begin as ``pattern`` does (``acme-*``)."""

    model_config = ConfigDict(frozen=True)

    broker: str
    queue: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Group:
    """Tenants of one queue that count as one: by a ``pattern``, or ``members`` that began together ``since`` then."""

    broker: str
    queue: str
    name: str
    pattern: str | None = None
    members: tuple[str, ...] = ()
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of one queue; ``cells`` by :data:`COLUMNS`, ``find`` is what its members' names begin with."""

    key: QueueKey
    name: str
    declared: bool
    noisy: int
    share: float | None
    how: str
    find: str
    cells: tuple[str, ...]


def declared(found: Iterable[Declared], queue: QueueKey | None) -> tuple[Group, ...]:
    """The declared groups of one queue, or of all."""
    return tuple(
        Group(one.broker, one.queue, one.pattern, pattern=one.pattern)
        for one in found
        if queue is None or (one.broker, one.queue) == (queue.broker, queue.queue)
    )


def together(beginnings: Iterable[Row], sending: Iterable[Row], as_of: datetime) -> tuple[Group, ...]:
    """Who began together and still sends, the largest group first.

    ``beginnings`` are (broker, queue, tenant, at) of who began to send at which unix second; ``sending`` who does now.
    """
    begun: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in beginnings:
        begun.setdefault((row["broker"], row["queue"]), []).append((row["at"], row["tenant"]))
    still = {(row["broker"], row["queue"], row["tenant"]) for row in sending}
    found: list[Group] = []
    for (broker, queue), onsets in begun.items():
        members: dict[str, list[str]] = {}
        for tenant, name in _groups(sorted(onsets)).items():
            if (broker, queue, tenant) in still:
                members.setdefault(name, []).append(tenant)
        since = {tenant: at for at, tenant in sorted(onsets)}
        found += [
            Group(
                broker,
                queue,
                name,
                members=tuple(sorted(those)),
                since=datetime.fromtimestamp(min(since[one] for one in those), as_of.tzinfo),
            )
            for name, those in members.items()
        ]
    return tuple(sorted(found, key=lambda one: (-len(one.members), one.broker, one.queue, one.name)))


def _groups(begun: Sequence[tuple[int, str]]) -> dict[str, str]:
    """Who began when, in order, in groups: of each its newest beginning counts."""
    law = Onsets()
    found: dict[str, str] = {}
    for second, those in groupby(begun, key=itemgetter(0)):
        for _, tenant in those:
            law.came(tenant, float(second))
            found.pop(tenant, None)
        if law.grows(second):
            found |= law.members(second)
    return found


def group_rows(groups: Sequence[Group], sums: Iterable[Row], now: datetime) -> tuple[GroupRow, ...]:
    """The groups that have tenants, those that hold most of what waits first. ``sums``: by a group's ``place``."""
    rows = [_row(groups[row["place"]], row, now) for row in sums if row["tenants"]]
    return tuple(sorted(rows, key=lambda row: (-(row.share or 0.0), row.key, row.name))[:MOST])


def _row(group: Group, row: Row, now: datetime) -> GroupRow:
    share = row["backlog"] / row["whole"] if row["backlog"] is not None and row["whole"] else None
    arrivals = row["arrival_rate"] / row["all_arrivals"] if row["arrival_rate"] and row["all_arrivals"] else None
    first, last = row["first"], row["last"]
    how = "by an entitlement" if group.since is None else f"began together at {instant(group.since, now, seconds=True)}"
    return GroupRow(
        key=QueueKey.of(row),
        name=group.name,
        declared=group.pattern is not None,
        noisy=row["noisy"],
        share=share,
        how=how,
        find=group.pattern[:-1] if group.pattern is not None else common(group.members),
        cells=(
            count(row["tenants"]),
            count(row["backlog"]),
            percent(share) if share is not None else "–",
            percent(arrivals) if arrivals is not None else "–",
            count(row["in_flight"]),
            UNKNOWN if row["backlog"] is None else age(row["oldest_age_seconds"]),
            f"{rate(row['arrival_rate'])} → {rate(row['completion_rate'])}",
            first if first == last else f"{first} to {last}",
        ),
    )


def headline(rows: Sequence[GroupRow], queue: str | None) -> str:
    """What the groups' view says first: who holds most."""
    where = f" on {queue}" if queue else ""
    if not rows:
        return f"No group of tenants{where}"
    first = rows[0]
    holds = f"holds {percent(first.share)} of the backlog" if first.share else "has nothing waiting"
    many = "1 tenant" if first.cells[0] == "1" else f"{first.cells[0]} tenants"
    return f"{first.name}: {many} as one, {holds}"
