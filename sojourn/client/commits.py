"""Up to where a partition may be committed while its messages are handled in another order than they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Message = TypeVar("Message")


class Commits(Generic[Message]):
    """Messages of partitions in the order in which they were fetched. Pure; not safe from several threads.

    A commit says that all before it is finished: of a partition it may go up to the last message before which, and with
    which, every one is. ``offset`` numbers of one partition grow.
    """

    def __init__(self) -> None:
        self._fetched: dict[object, deque[tuple[int, Message]]] = {}
        self._finished: dict[object, set[int]] = {}
        self._last: dict[object, Message] = {}

    def fetched(self, partition: object, offset: int, message: Message) -> None:
        """``message`` is to be handled."""
        self._fetched.setdefault(partition, deque()).append((offset, message))

    def finished(self, partition: object, offset: int) -> None:
        """The message at ``offset`` needs never come again. Of a partition that was forgotten it says nothing."""
        waiting = self._fetched.get(partition)
        if waiting is None:
            return
        finished = self._finished.setdefault(partition, set())
        finished.add(offset)
        while waiting and waiting[0][0] in finished:
            number, self._last[partition] = waiting.popleft()
            finished.discard(number)

    def behind(self, partition: object) -> int:
        """How many messages of the partition were fetched and may not be committed yet."""
        return len(self._fetched.get(partition, ()))

    def holds(self, partition: object, offset: int) -> bool:
        """Whether the message at ``offset`` is still to be finished here."""
        waiting = self._fetched.get(partition)
        return bool(waiting and waiting[0][0] <= offset <= waiting[-1][0])

    def due(self, partitions: Iterable[object] | None = None) -> list[Message]:
        """Up to where each partition (of ``partitions``) may be committed, told once: its last such message."""
        wanted = self._last if partitions is None else partitions
        return [self._last.pop(partition) for partition in tuple(wanted) if partition in self._last]

    def forget(self, partition: object) -> None:
        """The partition is another consumer's now."""
        for of in (self._fetched, self._finished, self._last):
            of.pop(partition, None)
