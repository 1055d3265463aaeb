"""Max-min fairness: nobody gets more than it asks for, and who gets less gets as much as anybody (Bertsekas, Gallager,
"Data Networks", 6.5.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate


def share(capacity: float, others: Iterable[float]) -> float:
    """What one that asks for everything gets of ``capacity`` beside the demands of ``others``, by max-min fairness."""
    demands = sorted(others)
    left, sharing = capacity, len(demands) + 1
    for demand in demands:
        if demand > left / sharing:
            break
        left -= demand
        sharing -= 1
    return max(0.0, left / sharing)


def shares(capacity: float, demands: Mapping[str, float], of: Iterable[str] | None = None) -> dict[str, float]:
    """For each of ``demands``, or those ``of`` them: its :func:`share` beside all the others, in n log n steps."""
    ordered = sorted(demands.values())
    below = [0.0, *accumulate(ordered)]  # below[k]: what the k smallest ask for together
    count = len(ordered)

    def level(demand: float) -> float:
        # The least k whose next demand is not met; of a share above its own demand, that is met by itself.
        low, high = 0, count
        while low < high:
            k = (low + high) // 2
            at = ordered[k]
            taken = below[k] + (count - k) * at + (at - demand if demand < at else 0.0)
            if taken >= capacity:
                high = k
            else:
                low = k + 1
        if low > 0 and demand <= ordered[low - 1]:
            return (capacity - below[low] + demand) / (count - low + 1)
        return (capacity - below[low]) / max(1, count - low)

    return {name: max(0.0, level(demands.get(name, 0.0))) for name in (demands if of is None else of)}


def beyond(capacity: float, demands: Mapping[str, float]) -> frozenset[str]:
    """Who asks for more than its share of ``capacity``."""
    found = shares(capacity, demands)
    return frozenset(name for name, rate in demands.items() if rate > found[name])
