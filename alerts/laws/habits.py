"""What a tenant used to send, learnt while nobody was held back: never is it entitled to less."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

#: The relative width of the classes in which a tenant's past is counted, and how fast it is forgotten.
CLASS_WIDTH, FORGOTTEN = 1.05, 0.99975
#: Looks after which a tenant's past counts: before, its 99th percentile would be its highest rate.
LEARNT_AFTER = 600
#: Looks that must stay calm before one is learnt from: a flood must not become its own entitlement.
LEARNT_LATE = 20


class Past:
    """How much a tenant used to send: its rates in classes of relative width, the older the lighter."""

    __slots__ = ("_classes", "_weight", "looks")

    def __init__(self) -> None:
        self._classes: dict[int, float] = {}
        self._weight = 1.0  # of the next rate: growing weights forget without touching what is there
        self.looks = 0

    def add(self, rate: float) -> None:
        """Count one look at which it sent ``rate``/s."""
        self.looks += 1
        if rate > 0:
            number = math.ceil(math.log(rate, CLASS_WIDTH))
            self._classes[number] = self._classes.get(number, 0.0) + self._weight
        self._weight /= FORGOTTEN
        if self._weight > 1e12:
            self._classes = {number: weight / self._weight for number, weight in self._classes.items()}
            self._weight = 1.0

    def quantile(self, q: float) -> float:
        """The rate that it kept to at ``q`` of the looks at which it sent at all, at most 5 % too high."""
        left = sum(self._classes.values()) * (1 - q)
        for number in sorted(self._classes, reverse=True):
            left -= self._classes[number]
            if left < 0:
                return CLASS_WIDTH**number
        return 0.0


class Habits:
    """What tenants of one queue used to send while nobody was held back."""

    def __init__(self) -> None:
        self._tenants: dict[str, Past] = {}
        self._looks: deque[Mapping[str, float]] = deque()

    def look(self, arrivals: Mapping[str, float], *, congested: bool) -> None:
        """Count one look; what came shortly before a congestion may have brought it about, and is forgotten."""
        if congested:
            self._looks.clear()
            return
        self._looks.append(arrivals)
        if len(self._looks) > LEARNT_LATE:
            for name, rate in self._looks.popleft().items():
                self._tenants.setdefault(name, Past()).add(rate)

    def usual(self, tenant: str) -> float:
        """The 99th percentile of what ``tenant`` sent (messages/s); 0 where too little is known of it."""
        past = self._tenants.get(tenant)
        return past.quantile(0.99) if past is not None and past.looks >= LEARNT_AFTER else 0.0
