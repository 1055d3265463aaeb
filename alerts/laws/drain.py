"""How long a backlog lasts, and what it takes for it to last no longer.

Source: Amazon Builders' Library, "Avoiding insurmountable queue backlogs" (D. Yanacek): ten times a consumer's
capacity, sent for half an hour, takes it five hours; twice the capacity makes good an hour's outage within an hour.
"""

from __future__ import annotations

import math


def drain_seconds(backlog: float, capacity: float, arrivals: float) -> float:
    """How long ``backlog`` messages last; rates in messages/s. Infinite where as many come as go."""
    if backlog <= 0:
        return 0.0
    return backlog / (capacity - arrivals) if capacity > arrivals else math.inf


#: The quantile of the normal distribution that leaves 5 % on either side.
Z90 = 1.645


def drain_interval(
    backlog: float, capacity: float, arrivals: float, window_seconds: float
) -> tuple[float, float, float]:
    """:func:`drain_seconds` between the bounds of a 90 % interval, rates being counts of ``window_seconds``.

    Arrivals and leavers are taken for Poisson counts, whose difference has the sum of both for its variance (Skellam,
    1946). The upper bound is infinite where the counts do not show that more leave than arrive.
    """
    spread = Z90 * math.sqrt(max(0.0, capacity + arrivals) / window_seconds)
    bounds = [drain_seconds(backlog, capacity + off, arrivals) for off in (spread, 0.0, -spread)]
    return bounds[0], bounds[1], bounds[2]


def capacity_needed(backlog: float, arrivals: float, within_seconds: float) -> float:
    """The throughput (messages/s) that has ``backlog`` gone ``within_seconds`` while ``arrivals`` go on."""
    if within_seconds <= 0:
        raise ValueError(f"a backlog cannot be gone within {within_seconds} s")
    return arrivals + max(0.0, backlog) / within_seconds
