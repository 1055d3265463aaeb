"""Additive increase, multiplicative decrease, with priorities: each limit adapts alone and all share fairly.

Sources: D. Chiu and R. Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in computer
networks", 1989. Priorities: Zalando engineering, "Enhancing Distributed System Load Shedding with TCP Congestion
Control Algorithm", April 2024: relieved P1 +15, P2 +10, P3 +5; congested P1 −20 %, P2 −40 %, P3 −60 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from alerts.laws.bounds import Bounds, Step


@dataclass(frozen=True, slots=True)
class Gains:
    """How much a relieved limit gains (messages/s) and which fraction a congested one loses, each step."""

    increase: float
    decrease: float


#: Zalando's published gains: the more important the traffic, the less it loses and the faster it comes back.
PRIORITIES = MappingProxyType({"P1": Gains(15, 0.20), "P2": Gains(10, 0.40), "P3": Gains(5, 0.60)})


def adapt(current: float, *, congested: bool, priority: str, bounds: Bounds) -> Step:
    """The limit after ``current``; ``priority`` is a key of :data:`PRIORITIES`."""
    gains = PRIORITIES[priority]
    wanted = current * (1 - gains.decrease) if congested else current + gains.increase
    limit = bounds.step(current, wanted)
    change = f"−{gains.decrease:.0%}" if congested else f"+{gains.increase:g}/s"
    capped = "" if limit == wanted else f", held to {limit:g}/s by its bounds"
    return Step(limit, f"{'congested' if congested else 'relieved'}: {change} (priority {priority}){capped}")
