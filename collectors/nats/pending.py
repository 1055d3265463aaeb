"""The unfinished messages of one stream: when each was enqueued, whose it is, how far each subscriber came with it.

Stream sequences are dense, so facts stand in arrays by sequence, a few bytes a message, and a chunk of them is
forgotten once all its messages are finished: a million waiting messages cost some 15 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

CHUNK = 4096
#: A subscriber's progress with a message. Between WAITING and FINISHED it is WAITING + attempts whose receipt was told.
UNKNOWN, WAITING, FINISHED = 0, 1, 255
_MOST_ATTEMPTS = FINISHED - WAITING - 1
_NO_TENANT = -1


class Entry(NamedTuple):
    """One unfinished message as one subscriber (None: the queue's only consumer) has it."""

    sequence: int
    subscriber: str | None
    enqueued_at: int | None
    tenant: str | None
    attempts: int


class _Chunk:
    __slots__ = ("enqueued_at", "live", "progress", "tenant")

    def __init__(self) -> None:
        self.enqueued_at = array("q", bytes(8 * CHUNK))
        self.tenant = array("i", [_NO_TENANT]) * CHUNK
        self.progress: dict[str | None, bytearray] = {}
        self.live = 0


class PendingMessages:
    """Unfinished messages by stream sequence; at most about ``limit``, beyond which the oldest are forgotten."""

    def __init__(self, limit: int) -> None:
        self.top = 0  # the highest sequence whose arrival is known
        self.forgotten = 0
        self._most_chunks = max(1, limit // CHUNK)
        self._chunks: dict[int, _Chunk] = {}
        self._tenants: list[str] = []
        self._tenant_index: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(chunk.live for chunk in self._chunks.values())

    def knows(self, sequence: int) -> bool:
        """Whether the message's arrival was recorded; False for those long finished."""
        chunk = self._chunks.get(sequence // CHUNK)
        return chunk is not None and any(row[sequence % CHUNK] for row in chunk.progress.values())

    def enqueue(
        self, sequence: int, at: int | None, tenant: str | None, subscribers: tuple[str | None, ...], attempts: int = 0
    ) -> None:
        """Remember a message that waits for ``subscribers``."""
        number, index = divmod(sequence, CHUNK)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = _Chunk()
            self._bound()
        chunk.enqueued_at[index] = at or 0
        if tenant is not None:
            chunk.tenant[index] = self._tenant(tenant)
        for subscriber in subscribers:
            row = chunk.progress.get(subscriber)
            if row is None:
                row = chunk.progress[subscriber] = bytearray(CHUNK)
            if row[index] == UNKNOWN:
                chunk.live += 1
            row[index] = WAITING + min(attempts, _MOST_ATTEMPTS)
        if sequence > self.top:
            self.top = sequence
            if index == 0:
                self._drop_if_done(number - 1)

    def facts(self, sequence: int) -> tuple[int | None, str | None]:
        """When the message was enqueued and whose it is; None for what is not known."""
        chunk = self._chunks.get(sequence // CHUNK)
        if chunk is None:
            return None, None
        index = sequence % CHUNK
        tenant = chunk.tenant[index]
        return chunk.enqueued_at[index] or None, self._tenants[tenant] if tenant >= 0 else None

    def attempts(self, sequence: int, subscriber: str | None) -> int | None:
        """How many attempts of an unfinished message were told; None if it is not known, or finished."""
        chunk = self._chunks.get(sequence // CHUNK)
        row = chunk.progress.get(subscriber) if chunk else None
        progress = row[sequence % CHUNK] if row else UNKNOWN
        return None if progress in (UNKNOWN, FINISHED) else progress - WAITING

    def begin(self, sequence: int, subscriber: str | None, attempts: int) -> None:
        """Note that the receipts of ``attempts`` attempts were told."""
        row = self._chunks[sequence // CHUNK].progress[subscriber]
        row[sequence % CHUNK] = WAITING + min(attempts, _MOST_ATTEMPTS)

    def finish(self, sequence: int, subscriber: str | None) -> None:
        """Note that the subscriber is done with the message for good."""
        number, index = divmod(sequence, CHUNK)
        chunk = self._chunks[number]
        row = chunk.progress[subscriber]
        if row[index] not in (UNKNOWN, FINISHED):
            row[index] = FINISHED
            chunk.live -= 1
            self._drop_if_done(number)

    def waiting(self, subscriber: str | None, first: int, last: int) -> Iterator[int]:
        """Messages from ``first`` to ``last`` that wait for their first attempt, in order."""
        for number in sorted(self._chunks):
            start = number * CHUNK
            row = self._chunks[number].progress.get(subscriber)
            if row is None or start + CHUNK <= first or start > last:
                continue
            index, end = max(0, first - start), min(CHUNK, last - start + 1)
            while (index := row.find(WAITING, index, end)) >= 0:
                yield start + index
                index += 1

    def unfinished(self, subscriber: str | None, last: int) -> Iterator[int]:
        """Messages up to ``last`` that the subscriber has not finished, in order."""
        for number in sorted(self._chunks):
            start = number * CHUNK
            row = self._chunks[number].progress.get(subscriber)
            if start > last:
                return
            if row is not None:
                for index in range(min(CHUNK, last - start + 1)):
                    if row[index] not in (UNKNOWN, FINISHED):
                        yield start + index

    def rename(self, old: str | None, new: tuple[str | None, ...]) -> None:
        """Let every message that waits for ``old`` wait for each of ``new`` instead."""
        for chunk in self._chunks.values():
            row = chunk.progress.pop(old, None)
            if row is None:
                continue
            live = sum(progress not in (UNKNOWN, FINISHED) for progress in row)
            chunk.live -= live
            for subscriber in new:
                if subscriber not in chunk.progress:
                    chunk.progress[subscriber] = bytearray(row)
                    chunk.live += live

    def entries(self) -> Iterator[Entry]:
        """Every unfinished message, for each subscriber that has it before it."""
        for number in sorted(self._chunks):
            for subscriber in list(self._chunks[number].progress):
                for sequence in self.unfinished_in(number, subscriber):
                    at, tenant = self.facts(sequence)
                    yield Entry(sequence, subscriber, at, tenant, self.attempts(sequence, subscriber) or 0)

    def unfinished_in(self, number: int, subscriber: str | None) -> Iterator[int]:
        """The subscriber's unfinished messages in one chunk."""
        row = self._chunks[number].progress[subscriber]
        return (number * CHUNK + index for index in range(CHUNK) if row[index] not in (UNKNOWN, FINISHED))

    def _tenant(self, tenant: str) -> int:
        index = self._tenant_index.get(tenant)
        if index is None:
            index = self._tenant_index[tenant] = len(self._tenants)
            self._tenants.append(tenant)
        return index

    def _drop_if_done(self, number: int) -> None:
        chunk = self._chunks.get(number)
        if chunk is not None and chunk.live == 0 and (number + 1) * CHUNK <= self.top:
            del self._chunks[number]

    def _bound(self) -> None:
        while len(self._chunks) > self._most_chunks:
            oldest = min(self._chunks)
            self.forgotten += self._chunks.pop(oldest).live
