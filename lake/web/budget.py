"""The bytes of bodies that are held at once, over all requests of a listener: counted as they arrive."""

from __future__ import annotations

from collections.abc import Callable


class Holding:
    """The bytes of one request. ``evict`` is called once if others need its place while its body is still coming."""

    __slots__ = ("_budget", "bytes", "evict", "evicted")

    def __init__(self, budget: Budget, evict: Callable[[], None]) -> None:
        self._budget = budget
        self.evict = evict
        self.evicted = False
        self.bytes = 0

    def charge(self, count: int) -> bool:
        """Hold ``count`` bytes more; False, and not held, where there is no room even without those that stall."""
        return self._budget.charge(self, count)

    def whole(self) -> None:
        """The body has come wholly: nothing drives it out any more."""
        self._budget.whole(self)

    def release(self) -> None:
        """Nothing of it is held any more."""
        self._budget.release(self)


class Budget:
    """At most ``most`` bytes. Where they are used up, the body that grew the longest ago makes room: half a body that
    nobody goes on with keeps no living sender out. It belongs to one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self.highest = 0
        self._coming: dict[Holding, None] = {}  # by when they grew last, the longest ago first

    def holding(self, evict: Callable[[], None]) -> Holding:
        """A place for one request's bytes."""
        return Holding(self, evict)

    def charge(self, one: Holding, count: int) -> bool:
        """See :meth:`Holding.charge`."""
        if one.evicted:
            return False
        self._coming.pop(one, None)
        while self.held + count > self.most and self._coming:
            self._evict(next(iter(self._coming)))
        if self.held + count > self.most:
            return False
        self._coming[one] = None
        one.bytes += count
        self.held += count
        self.highest = max(self.highest, self.held)
        return True

    def whole(self, one: Holding) -> None:
        """See :meth:`Holding.whole`."""
        self._coming.pop(one, None)

    def release(self, one: Holding) -> None:
        """See :meth:`Holding.release`."""
        self._coming.pop(one, None)
        self.held -= one.bytes
        one.bytes = 0

    def _evict(self, one: Holding) -> None:
        self.release(one)
        one.evicted = True
        one.evict()
