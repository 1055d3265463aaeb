"""What a limit that is not in force would have done to the traffic that came all the same.

A producer that holds back what it may not send is a queue served at the limit's rate; its backlog follows from arrivals
alone (a fluid model: Kleinrock, "Queueing Systems II", 2.7). Envoy's rate limiter counts the same in its shadow mode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: What lay between two looks further apart than this is not known, and not counted (seconds).
MOST_BETWEEN = 10.0


@dataclass(frozen=True, slots=True)
class Shadow:
    """From ``since`` to ``at``: ``arrived`` messages came of the tenant, ``delayed`` of them would have been held back,
    for ``longest`` seconds at most; ``held`` would be held now. Quiet tenants waited up to ``quiet_age`` seconds.
    """

    since: float
    at: float
    arrived: float = 0.0
    delayed: float = 0.0
    held: float = 0.0
    longest: float = 0.0
    quiet_age: float = 0.0

    def __str__(self) -> str:
        return (
            f"in {self.at - self.since:.0f} s it would have held back {self.delayed:.0f} of {self.arrived:.0f} "
            f"messages, for {self.longest:.1f} s at most; quiet tenants waited up to {self.quiet_age:.3g} s"
        )


def look(before: Shadow, arrival_rate: float, limit: float, quiet_age: float, now: float) -> Shadow:
    """The shadow after a look at ``now``: since the last one ``arrival_rate``/s came under a ``limit`` (messages/s)."""
    elapsed = max(0.0, now - before.at)
    before = replace(before, at=max(before.at, now), quiet_age=max(before.quiet_age, quiet_age))
    if elapsed > MOST_BETWEEN:
        return before
    arrived = arrival_rate * elapsed
    held = max(0.0, before.held + arrived - limit * elapsed)
    return replace(
        before,
        arrived=before.arrived + arrived,
        # Whoever finds others held waits behind them; else those that the limit leaves over do.
        delayed=before.delayed + (arrived if before.held > 0 and held > 0 else held),
        held=held,
        longest=max(before.longest, held / limit),
    )
