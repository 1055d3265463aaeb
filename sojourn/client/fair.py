"""Start-time fair queueing: in which order a consumer takes what its tenants have waiting.

Goyal, Vin, Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet Switching Networks",
SIGCOMM 1996. A tenant's next message starts at max(virtual time − credit, the tenant's last finish) and finishes its
cost ÷ weight later; the least start is served, and the virtual time is the greatest start served. Whatever one tenant
has waiting, another's message waits for about one message of each tenant that is busy.

The credit is of what a tenant left of its share a moment ago: messages come by chance, and a few at once are no excess.
Linux' scheduler places sleepers so (I. Molnár, CFS, 2007: ``place_entity``); without it (0) the law is as published.
Who was never seen has none. Messages that start before the virtual time, within their tenants' credit, go before all
others, and among them in order of arrival: they ask for no more than is theirs, and of all orders that one keeps the
longest waits shortest (J. F. C. Kingman, "The effect of queue discipline on waiting time variance", 1962).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: How much a new measurement counts in a tenant's mean cost, and in everybody's.
SMOOTHING = 0.2
#: A tenant's credit: so many messages of the mean cost, at weight 1.
CREDIT = 10.0
#: So many tenants more than at the last look are remembered before it is asked again who can be forgotten.
_SLACK = 64


class _Tenant(Generic[Item]):
    __slots__ = ("cost", "finish", "items", "pending", "start", "weight")

    def __init__(self, weight: float, cost: float, finish: float) -> None:
        self.items: deque[tuple[int, Item]] = deque()  # each with the number of its arrival
        self.weight = weight
        self.cost = cost  # the mean cost of its messages, as far as it is known
        self.start = 0.0  # of the message at the head
        self.finish = finish  # of the message served last
        self.pending = 0  # served, and not yet told what they cost


class FairOrder(Generic[Item]):
    """What waits, by tenant, and whose turn it is. Pure: no clock, no lock; memory grows with what waits alone.

    ``weights`` are shares relative to 1, for tenants that have another. Costs are in any one unit, best in seconds of
    processing: a message is charged its tenant's mean cost when it is taken, and :meth:`done` corrects the charge when
    the cost is known. ``credit`` is how many messages of mean cost a tenant that left its share unused may be served
    before others, in a row. Within a tenant the order of arrival is kept. Work-conserving: :meth:`take` has an item as
    long as one waits.

    Raises ValueError for a weight or a cost that is not a number above 0.
    """

    def __init__(self, weights: dict[str, float] | None = None, *, cost: float = 1.0, credit: float = CREDIT) -> None:
        self._weights = {tenant: _positive("weight", weight) for tenant, weight in (weights or {}).items()}
        self._mean_cost = _positive("cost", cost)  # what a new tenant's first message is thought to cost
        if not (math.isfinite(credit) and credit >= 0):
            raise ValueError(f"credit {credit} must be a number of messages, 0 or more")
        self._credit = credit
        self._tenants: dict[str, _Tenant[Item]] = {}
        #: Whether it starts beyond its tenant's credit; the number of its arrival, or else its start; the order of
        #: entry; its tenant and its start. Some are out of date.
        self._heads: list[tuple[bool, float, int, str, float]] = []
        self._entries = 0
        self._arrivals = 0
        self._waiting = 0
        self._working = 0
        self._virtual = 0.0
        self._look_at = _SLACK

    def __len__(self) -> int:
        """How many items wait."""
        return self._waiting

    @property
    def tenants(self) -> int:
        """How many tenants are remembered: those with something waiting, in work, or ahead of their share."""
        return len(self._tenants)

    def waiting(self, tenant: str) -> int:
        """How many items of ``tenant`` wait."""
        known = self._tenants.get(tenant)
        return len(known.items) if known else 0

    def put(self, tenant: str, item: Item) -> None:
        """Let ``item`` of ``tenant`` wait for its turn."""
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants[tenant] = _Tenant(self._weights.get(tenant, 1.0), self._mean_cost, self._virtual)
            if len(self._tenants) > self._look_at:
                self._forget_who_is_level()
        self._arrivals += 1
        known.items.append((self._arrivals, item))
        self._waiting += 1
        if len(known.items) == 1:
            self._queue_head(tenant, known)

    def take(self) -> tuple[str, Item]:
        """The tenant whose turn it is, and its oldest item. IndexError where nothing waits."""
        while True:
            head = heapq.heappop(self._heads)
            if self._is_current(head):
                break
        *_, tenant, start = head
        known = self._tenants[tenant]
        self._virtual = max(self._virtual, start)
        _, item = known.items.popleft()
        self._waiting -= 1
        known.pending += 1
        self._working += 1
        known.finish = start + known.cost / known.weight
        if known.items:
            self._queue_head(tenant, known)
        return tenant, item

    def withdraw(self, tenant: str) -> list[Item]:
        """Take out all that waits of ``tenant``, the oldest first, as if it had not come."""
        known = self._tenants.get(tenant)
        if known is None:
            return []
        items = [item for _, item in known.items]
        known.items.clear()
        self._waiting -= len(items)
        return items

    def done(self, tenant: str, cost: float) -> None:
        """Tell what a taken item of ``tenant`` cost in truth; what was charged too much or too little is made good."""
        known = self._tenants.get(tenant)
        if known is None or not known.pending or not math.isfinite(cost) or cost < 0:
            return
        known.pending -= 1
        self._working -= 1
        known.finish += (cost - known.cost) / known.weight
        known.cost = _smoothed(known.cost, cost)
        self._mean_cost = _smoothed(self._mean_cost, cost)
        if known.items:
            self._queue_head(tenant, known)
        elif not self._waiting and not self._working:  # a busy period has ended: nobody is ahead or behind
            self._virtual = max(self._virtual, *(each.finish for each in self._tenants.values()))
            self._tenants.clear()
            self._heads.clear()

    def _queue_head(self, tenant: str, known: _Tenant[Item]) -> None:
        start = known.start = max(self._earliest, known.finish)
        self._entries += 1
        beyond = start >= self._virtual
        turn = start if beyond else float(known.items[0][0])
        heapq.heappush(self._heads, (beyond, turn, self._entries, tenant, start))
        if len(self._heads) > 4 * len(self._tenants) + _SLACK:
            self._heads = [head for head in self._heads if self._is_current(head)]
            heapq.heapify(self._heads)

    @property
    def _earliest(self) -> float:
        """Before it no message starts: who took less than its share catches up so far, and no further."""
        return self._virtual - self._credit * self._mean_cost

    def _is_current(self, head: tuple[bool, float, int, str, float]) -> bool:
        known = self._tenants.get(head[3])
        return known is not None and bool(known.items) and known.start == head[4]

    def _forget_who_is_level(self) -> None:
        """A tenant that has nothing here, and all the credit that there is, is as one that comes back.

        It is told from one that never came only by its credit, which memory is not kept for.
        """
        earliest = self._earliest
        self._tenants = {
            tenant: known
            for tenant, known in self._tenants.items()
            if known.items or known.pending or known.finish > earliest
        }
        self._look_at = 2 * len(self._tenants) + _SLACK


def _smoothed(mean: float, cost: float) -> float:
    return max(1e-9, mean + SMOOTHING * (cost - mean))


def _positive(what: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} {value} must be a number above 0")
    return value
