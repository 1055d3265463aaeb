"""The lives of one partition's records: pure, without connection or clock.

Told are the arrival of every record and, for each watched group, its end, when the offset that the group committed has
passed it. Records between the two are remembered, up to a bound: Kafka keeps them, so that those beyond it are simply
read again when it is their turn. Nothing is ever conflated here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from collectors.kafka.tap.records import Records, join
from collectors.kafka.tap.rows import MADE_ANEW, REMOVED, Rows

#: Looks remembered while the records that they speak of are not read yet.
_MOST_LOOKS = 10_000
_ALL = 2**62


@dataclass(slots=True)
class Group:
    """A watched group: records below ``told`` have ended for it. It never goes back: a record ends once."""

    subscriber: str | None
    told: int
    looks: deque[tuple[int, int]] = field(default_factory=deque)  # committed offset, when it was seen

    def seen(self, committed: int, at: int) -> None:
        """The group's committed offset was ``committed`` at ``at``."""
        newest = self.looks[-1][0] if self.looks else self.told
        if committed > newest:
            if len(self.looks) >= _MOST_LOOKS:
                self.looks.pop()  # the newest but one: what it passed is then told by this later bound
            self.looks.append((committed, at))


class Partition:
    """One partition from ``position`` on, the next offset to be read."""

    def __init__(self, rows: Rows, position: int, told: dict[str, int], *, named: bool, bound: int) -> None:
        self.position = position
        self.groups = {name: Group(name if named else None, offset) for name, offset in told.items()}
        self._rows = rows
        self._bound = bound
        self._memory: deque[Records] = deque()
        self._size = 0
        self._known = min([position, *told.values()])  # what is unfinished below this is in memory

    @property
    def label(self) -> str:
        """Topic and partition, as message ids begin."""
        return self._rows.label

    @property
    def remembered(self) -> int:
        """How many records are in memory."""
        return self._size

    def arrived(self, records: Records, now: int) -> list[pa.Table]:
        """Read from ``position`` on."""
        fresh = records.between(self.position, records.last + 1)
        if not len(fresh):
            return []
        whole = self._known == self.position
        self.position = fresh.last + 1
        if whole and self._size < self._bound:
            self._remember(fresh)
        return [self._rows.enqueued(fresh, now)]

    def to_recall(self) -> int | None:
        """From where records are to be read again, because they are unfinished and not in memory; None: nowhere."""
        if not self.groups:
            return None
        self._known = max(self._known, min(group.told for group in self.groups.values()))
        return self._known if self._known < self.position and self._size <= self._bound // 2 else None

    def recalled(self, records: Records) -> None:
        """Read again, from :meth:`to_recall` on; they were told before."""
        missing = records.between(self._known, self.position)
        if len(missing):
            self._remember(missing)
        if records.last >= self.position:
            self.recalled_all()

    def recalled_all(self) -> None:
        """There is nothing more to be read again below ``position``."""
        self._known = max(self._known, self.position)

    def ended(self, most: int = _ALL) -> list[pa.Table]:
        """What the groups' looks tell of records that are in memory; no more once ``most`` ends of a group are told."""
        tables: list[pa.Table] = []
        for group in self.groups.values():
            left = most
            while group.looks and left > 0:
                committed, at = group.looks[0]
                reach = min(committed, self._known)
                if reach > group.told:
                    done = self._remembered(group.told, reach, left)
                    if done is not None:
                        tables.append(self._rows.completed(done, group.subscriber, at))
                        left -= len(done)
                        if left <= 0:
                            reach = done.last + 1  # the others are told by the next call
                    group.told = reach
                if reach < committed:
                    break
                group.looks.popleft()
        self._forget()
        return tables

    def retained(self, low: int, at: int) -> tuple[list[pa.Table], int]:
        """Kafka holds nothing below ``low`` any more: what a group had not read has expired for it.

        Also returns how many offsets went by of which nothing can be told: removed before we had read them, or read
        them again.
        """
        tables: list[pa.Table] = []
        if self.groups:
            self._known = max(self._known, min(group.told for group in self.groups.values()))
        gone_unread = max(0, low - (self._known if self.groups else self.position))
        for group in self.groups.values():
            if group.told < low:
                expired = self._remembered(group.told, low)
                group.told = low
                if expired is not None:
                    tables.append(self._rows.expired(expired, group.subscriber, at, REMOVED))
        self.position = max(self.position, low)
        self._known = max(self._known, low)
        self._forget()
        return tables, gone_unread

    def deleted(self, at: int) -> list[pa.Table]:
        """The topic is gone, and with it what the groups had not read."""
        tables = []
        for group in self.groups.values():
            expired = self._remembered(group.told, self._known)
            group.told = self.position
            if expired is not None:
                tables.append(self._rows.expired(expired, group.subscriber, at, MADE_ANEW))
        return tables

    def _remember(self, records: Records) -> None:
        self._known = records.last + 1
        if self.groups:
            self._memory.append(records)
            self._size += len(records)

    def _remembered(self, low: int, high: int, most: int = _ALL) -> Records | None:
        """Those with ``low`` ≤ offset < ``high``; none more once there are ``most``."""
        parts: list[Records] = []
        for held in self._overlapping(low, high) if low < high else ():
            if len(part := held.between(low, high)):
                parts.append(part)
                most -= len(part)
            if most <= 0:
                break
        return join(parts) if parts else None

    def _overlapping(self, low: int, high: int) -> Iterable[Records]:
        for held in self._memory:
            if held.first >= high:
                return
            if held.last >= low:
                yield held

    def _forget(self) -> None:
        """Let go of what every group has finished."""
        done = min((group.told for group in self.groups.values()), default=self.position)
        while self._memory and self._memory[0].last < done:
            self._size -= len(self._memory.popleft())
