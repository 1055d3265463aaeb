"""Start-time fair queueing by group, then by tenant: who has many names has no more than one share.

Hierarchical SFQ, as in Goyal, Vin, Cheng, SIGCOMM 1996, section 3: each group's turn comes by its own start tags, and
within it each tenant's by those of the group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from sojourn.client.fair import FairOrder
from sojourn.client.groups import Onsets, Patterns

Item = TypeVar("Item")

#: Groups are told from tenants of the same name by this, which no name begins with.
_GROUP = "\0"


class GroupedOrder(Generic[Item]):
    """What waits, and whose turn it is, as :class:`FairOrder`, which is what it is where nobody is in a group.

    ``groups`` are patterns of names (``acme-*``); with ``onsets``, who begins together with many others is a group, too
    (:mod:`sojourn.client.groups`), on ``clock``. A tenant's weight counts within its group, a group's own stands under
    its pattern. Within a tenant the order of arrival is kept, also where it comes into a group meanwhile.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        groups: Iterable[str] = (),
        onsets: Onsets | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._weights = dict(weights or {})
        self._patterns, self._onsets, self._clock = Patterns(groups), onsets, clock
        both = self._weights | {_GROUP + name: weight for name, weight in self._weights.items()}
        self._units: FairOrder[None] = FairOrder(both)
        self._within: dict[str, FairOrder[Item]] = {}  # of groups with something waiting or in work
        self._alone: dict[str, deque[Item]] = {}  # of tenants that are no group's
        self._unit_of: dict[str, str] = {}  # of tenants with something waiting
        self._in_work: dict[str, deque[str]] = {}  # the units from which a tenant's items were taken
        self._working: dict[str, int] = {}  # by group

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._units)

    @property
    def tenants(self) -> int:
        """How many tenants and groups are remembered."""
        return self._units.tenants + sum(order.tenants for order in self._within.values())

    def waiting(self, tenant: str) -> int:
        """How many items of ``tenant`` wait."""
        unit = self._unit_of.get(tenant, tenant)
        return self._within[unit].waiting(tenant) if unit in self._within else len(self._alone.get(tenant, ()))

    def put(self, tenant: str, item: Item) -> None:
        """Let ``item`` of ``tenant`` wait for its turn."""
        group = self._group(tenant)
        before = self._unit_of.get(tenant)
        # A tenant leaves its group once nothing of it waits there: its messages stay in order.
        unit = before if before is not None and before.startswith(_GROUP) else tenant if group is None else group
        if before == tenant and unit != tenant:
            self._move(tenant, unit)
        self._unit_of[tenant] = unit
        self._put(unit, tenant, item)

    def take(self) -> tuple[str, Item]:
        """The tenant whose turn it is, and its oldest item. IndexError where nothing waits."""
        unit, _ = self._units.take()
        if unit.startswith(_GROUP):
            tenant, item = self._within[unit].take()
            self._working[unit] = self._working.get(unit, 0) + 1
            left = self._within[unit].waiting(tenant)
        else:
            tenant, items = unit, self._alone[unit]
            item = items.popleft()
            left = len(items)
            if not items:
                del self._alone[unit]
        if not left:
            self._unit_of.pop(tenant, None)
        self._in_work.setdefault(tenant, deque()).append(unit)
        return tenant, item

    def done(self, tenant: str, cost: float) -> None:
        """Tell what a taken item of ``tenant`` cost in truth."""
        units = self._in_work.get(tenant)
        if not units:
            return
        unit = units.popleft()
        if not units:
            del self._in_work[tenant]
        self._units.done(unit, cost)
        if unit.startswith(_GROUP):
            order = self._within[unit]
            order.done(tenant, cost)
            self._working[unit] -= 1
            if not len(order) and not self._working[unit]:
                del self._within[unit], self._working[unit]

    def _group(self, tenant: str) -> str | None:
        found = self._patterns.of(tenant)
        if found is None and self._onsets is not None:
            now = self._clock()
            self._onsets.came(tenant, now)
            found = self._onsets.of(tenant, now)
        return None if found is None else _GROUP + found

    def _put(self, unit: str, tenant: str, item: Item) -> None:
        if unit.startswith(_GROUP):
            if unit not in self._within:
                self._within[unit] = FairOrder(self._weights)
                self._working[unit] = 0
            self._within[unit].put(tenant, item)
        else:
            self._alone.setdefault(tenant, deque()).append(item)
        self._units.put(unit, None)

    def _move(self, tenant: str, unit: str) -> None:
        """Let what waits of ``tenant`` alone wait within the group ``unit``."""
        self._units.withdraw(tenant)
        for item in self._alone.pop(tenant):
            self._put(unit, tenant, item)
