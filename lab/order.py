"""The orders in which a queue may serve what waits: by arrival, and the fair ones that are compared with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Generic, Protocol, TypeVar

from sojourn.client.fair import SMOOTHING
from sojourn.client.grouped import GroupedOrder
from sojourn.client.groups import Onsets

Item = TypeVar("Item")


class Order(Protocol[Item]):
    """What waits, and what is served next."""

    def __len__(self) -> int:
        """How many items wait."""

    def put(self, tenant: str, item: Item) -> None:
        """Let ``item`` of ``tenant`` wait."""

    def take(self) -> tuple[str, Item]:
        """What is served next. IndexError where nothing waits."""

    def done(self, tenant: str, cost: float) -> None:
        """An item that was taken cost so much (seconds of processing)."""

    def told_noisy(self, tenants: set[str]) -> None:
        """These tenants are noisy, and no others."""


class ArrivalOrder(Generic[Item]):
    """First in, first out: as it is where nobody asks for another order."""

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

    def told_noisy(self, tenants: set[str]) -> None:
        """Nor who is noisy."""


class StartTimeOrder(GroupedOrder[Item]):
    """The order of ``sojourn.FairConsumer`` itself."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, weights: Mapping[str, float] | None = None) -> None:
        super().__init__(weights, onsets=Onsets(), clock=clock)

    def told_noisy(self, tenants: set[str]) -> None:
        """It is fair to everybody, whoever is called noisy."""


class RoundRobinOrder(Generic[Item]):
    """Deficit round robin: M. Shreedhar, G. Varghese, "Efficient Fair Queuing using Deficit Round Robin", SIGCOMM 1995.

    Each round adds a quantum to a tenant's credit, and it is served while the credit lasts. What a message costs is not
    known before it is done: it is charged its tenant's mean, and the rest afterwards.
    """

    def __init__(self, quantum: float = 0.1) -> None:
        self._quantum = quantum
        self._items: dict[str, deque[Item]] = {}
        self._round: deque[str] = deque()  # who has something waiting, and whose turn is next
        self._credit: dict[str, float] = {}
        self._mean: dict[str, float] = {}
        self._charged: dict[str, deque[float]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._waiting

    def put(self, tenant: str, item: Item) -> None:
        """Let ``item`` wait behind its tenant's others."""
        if not self._items.setdefault(tenant, deque()):
            self._round.append(tenant)
            # Who had nothing waiting keeps no credit, but what is owed stays owed.
            self._credit[tenant] = min(0.0, self._credit.get(tenant, 0.0))
        self._items[tenant].append(item)
        self._waiting += 1

    def take(self) -> tuple[str, Item]:
        """The next of the tenant whose turn it is. IndexError where nothing waits."""
        if not self._waiting:
            raise IndexError("nothing waits")
        while True:
            tenant = self._round[0]
            cost = self._mean.get(tenant, self._quantum)
            if self._credit[tenant] >= cost:
                break
            self._credit[tenant] += self._quantum
            self._round.rotate(-1)
        self._credit[tenant] -= cost
        self._charged.setdefault(tenant, deque()).append(cost)
        item = self._items[tenant].popleft()
        self._waiting -= 1
        if not self._items[tenant]:
            self._round.popleft()
        return tenant, item

    def done(self, tenant: str, cost: float) -> None:
        """Charge the rest of what it cost."""
        self._credit[tenant] += self._charged[tenant].popleft() - cost
        mean = self._mean.get(tenant, cost)
        self._mean[tenant] = mean + SMOOTHING * (cost - mean)

    def told_noisy(self, tenants: set[str]) -> None:
        """It is fair to everybody, whoever is called noisy."""


class QuietFirstOrder(Generic[Item]):
    """The rule of SQS fair queues: noisy tenants' messages wait while others' do; by arrival among each of the two."""

    def __init__(self) -> None:
        self._items: dict[str, deque[tuple[int, Item]]] = {}
        self._noisy: set[str] = set()
        self._numbers = count()
        self._waiting = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._waiting

    def put(self, tenant: str, item: Item) -> None:
        """Let ``item`` wait behind its tenant's others."""
        self._items.setdefault(tenant, deque()).append((next(self._numbers), item))
        self._waiting += 1

    def take(self) -> tuple[str, Item]:
        """The oldest of a quiet tenant, else the oldest. IndexError where nothing waits."""
        if not self._waiting:
            raise IndexError("nothing waits")
        tenant = min(
            (name for name, items in self._items.items() if items),
            key=lambda name: (name in self._noisy, self._items[name][0][0]),
        )
        self._waiting -= 1
        items = self._items[tenant]
        _, item = items.popleft()
        if not items:
            del self._items[tenant]
        return tenant, item

    def done(self, tenant: str, cost: float) -> None:
        """What an item cost changes nothing here: the rule that names the noisy looks at it."""

    def told_noisy(self, tenants: set[str]) -> None:
        """These wait behind all others from now on."""
        self._noisy = tenants


#: Name in a scenario → what it is.
ORDERS = {
    "arrival": ArrivalOrder,
    "fair": StartTimeOrder,
    "round_robin": RoundRobinOrder,
    "quiet_first": QuietFirstOrder,
}
#: Those to which it matters who is called noisy.
HEED_THE_NOISY = ("quiet_first",)


def of(name: str, clock: Callable[[], float] = lambda: 0.0, weights: Mapping[str, float] | None = None) -> Order[Item]:
    """A new order of that name, with nothing in it; ``clock`` and tenants' ``weights`` are for those that heed them."""
    if name == "fair":
        return StartTimeOrder(clock, weights)
    order: Order[Item] = ORDERS[name]()
    return order
