"""Over how long arrivals are counted: of late, for a limit is judged by what came after it, and as they usually are."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.control.settings import PolicySettings
from alerts.laws.blame import USUAL_SECONDS

#: Of late is over the shortest cooldown, within these bounds (seconds). Over ten, consumers that come back from an
#: outage seem to be slow for so long that a large tenant seems to be beyond its share.
RECENT_RANGE = (2, 5)
#: Over as short a time as tells anything of a rate: what policies look at that are ``early``, too.
BRIEF_SECONDS = 2


def recent_seconds(policies: Sequence[PolicySettings]) -> int:
    """How far back a tenant's arrivals are counted."""
    shortest = min((policy.cooldown_seconds for policy in policies), default=RECENT_RANGE[1])
    return min(RECENT_RANGE[1], max(RECENT_RANGE[0], int(shortest)))


def usual_seconds(window_seconds: int) -> int:
    """Over how long what is usual is counted apart from the metrics' window; 0: that is long enough to tell."""
    return USUAL_SECONDS if window_seconds < USUAL_SECONDS else 0
