"""What a tenant's share of a queue is, and whether its servers have more to do than they finish."""

from __future__ import annotations

import math
from dataclasses import replace

from alerts.laws.blame import DEVIATIONS, SIGNIFICANT
from alerts.laws.limits import Limit, Terms
from alerts.laws.observation import WAITING_TO_BEGUN, Observation

#: Consumers that finish less than this part of what they did have slowed down, or stopped; that did less than this part
#: of what they finish now, are on their way back. Neither is a tenant's doing, nor tells what a share is.
STEADY = 0.8
#: What waits for less than this part of the target is next to nothing: servers may idle soon.
NEXT_TO_NOTHING = 0.1
#: What a look shows the share to be is told by a few seconds' counts: its mean over about so many seconds is believed.
BELIEVED_SECONDS = 10.0


def base_rate(terms: Terms, seen: Observation) -> float | None:
    """What a tenant is entitled to: the rate set, or its part of its max-min share; None if unknown."""
    if terms.rate is not None:
        return terms.rate
    share = seen.max_min_share
    return None if share is None else terms.share * share


def relief_rate(terms: Terms, seen: Observation, base: float) -> float:
    """What of ``base`` is left for the tenant while the backlog shall be gone in ``drain_seconds``; an equal share at
    the least: draining takes λ + backlog ÷ T, and the others' λ is not the tenant's to give."""
    if terms.rate is not None or seen.active_tenants < 1:
        return base
    return less(terms, seen, base, seen.backlog / terms.drain_seconds)


def less(terms: Terms, seen: Observation, base: float, by: float) -> float:
    """``base`` less ``by`` (messages/s); an equal share at the least, or ``base`` where that is less."""
    equal = terms.share * seen.throughput / max(1, seen.active_tenants) / seen.cost
    return max(min(base, equal), base - by)


def reckoned(terms: Terms, seen: Observation, current: Limit, now: float) -> Limit:
    """``current`` with the share as it is now: its mean over :data:`BELIEVED_SECONDS`, and at once what is more by far
    than chance, as when servers were added, or what is less once a change has settled: until then some of it was
    measured while servers idled, which seems less than it is.

    While nothing waits, what is finished is what is asked for, and tells of no capacity.
    """
    busy = is_behind(terms, seen) and seen.finish_rate >= STEADY * seen.completion_rate
    share = base_rate(terms, seen) if busy else None
    if share is None:
        return current
    settled, apart = now - current.changed_at >= terms.cooldown_seconds, share - current.base
    if (apart if not settled else abs(apart)) > _apart_by_chance(seen):
        return replace(current, base=share, base_at=now)
    since = 0.0 if current.base_at is None else now - current.base_at
    believed = 1 - math.exp(-min(1.0, max(0.0, since)) / BELIEVED_SECONDS)
    return replace(current, base=current.base + believed * apart, base_at=now)


def _apart_by_chance(seen: Observation) -> float:
    """By how much a share that a look shows may be wrong by chance (messages/s)."""
    if seen.recent_seconds <= 0:
        return math.inf
    varying = (seen.finish_rate + seen.others_rate * seen.others_cost**2) / seen.cost**2
    return DEVIATIONS * math.sqrt(varying / seen.recent_seconds)


def next_to_nothing(terms: Terms, seen: Observation) -> float:
    """Messages that wait so shortly that servers may idle soon."""
    return NEXT_TO_NOTHING * terms.target_seconds * seen.throughput


def piles_up(terms: Terms, seen: Observation) -> bool:
    """Whether more waits than next to nothing, and than chance piles up in a second: no server idles."""
    return seen.waiting > next_to_nothing(terms, seen) + SIGNIFICANT * math.sqrt(seen.throughput)


def is_behind(terms: Terms, seen: Observation) -> bool:
    """Whether servers have more to do than they finish: what they finish is what they can."""
    return suffers(terms, seen) or piles_up(terms, seen)


def is_calm(terms: Terms, seen: Observation) -> bool:
    """Whether a queue is within its target, or only messages that were tried before are older: what began lately is
    far younger."""
    begun = math.inf if seen.first_age is None else seen.first_age
    return seen.calm or WAITING_TO_BEGUN * begun <= terms.target_seconds


def suffers(terms: Terms, seen: Observation) -> bool:
    return seen.quiet_wait > terms.target_seconds
