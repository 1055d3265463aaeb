"""A limit in inverse proportion to the backlog: half the rate at twice the target.

Source: Amazon Builders' Library, "Avoiding insurmountable queue backlogs" (D. Yanacek): throttle what comes in, in
proportion to how far behind the queue is.
"""

from __future__ import annotations

from alerts.laws.bounds import Bounds, Step


def limit(base: float, *, backlog: float, target: float, bounds: Bounds) -> Step:
    """``base × target ÷ max(target, backlog)``, within ``bounds``.

    ``base`` is the rate (messages/s) of an unloaded queue. ``backlog`` and ``target`` share a unit: messages, or
    seconds of age.
    """
    if base <= 0 or target <= 0 or backlog < 0:
        raise ValueError(f"base {base} and target {target} must be above 0, backlog {backlog} at least 0")
    allowed = bounds.within(base * target / max(target, backlog))
    return Step(allowed, f"{base:g}/s × {target:g} ÷ max({target:g}, {backlog:g}) = {allowed:g}/s within its bounds")
