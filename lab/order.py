"""First in, first out: the order in which a queue serves where nobody asks for another."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ArrivalOrder(Generic[Item]):
    """As :class:`sojourn.client.fair.FairOrder`, by arrival alone."""

    def __init__(self) -> None:
        self._items: deque[tuple[str, Item]] = deque()

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._items)

    def put(self, tenant: str, item: Item) -> None:
        """Let ``item`` wait behind all others."""
        self._items.append((tenant, item))

    def take(self) -> tuple[str, Item]:
        """The item that came first. IndexError where nothing waits."""
        return self._items.popleft()

    def done(self, tenant: str, cost: float) -> None:
        """What an item cost changes nothing here."""
