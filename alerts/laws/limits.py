"""Limits in force, what was agreed about them and what is decided: the vocabulary of the laws that policies choose.

What all of them do alike stands here, too: what data is no ground to act on, whether a limit was obeyed, when its lease
is renewed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from alerts.laws.bounds import Bounds
from alerts.laws.law import Law
from alerts.laws.observation import Observation

#: Below this many messages a ratio of two counts, taken a moment apart, says nothing.
SMALL_BACKLOG = 20
#: A broker is asked within a second, at whose end events tell what is left: in one count alone is what was finished in
#: as many seconds.
COUNTED_APART = 1.0
#: What asks for a limit is believed at a second look, at least so many seconds after the first.
CONFIRM_SECONDS = 1.0
#: An event can seem to come from the future by so much, clocks being what they are (seconds); beyond, no age is known.
CLOCK_TOLERANCE = 5.0
#: The code of a limit that is kept because arrivals do not follow it; what such a verdict's reason begins with.
NOT_OBEYED, IGNORED = "not_obeyed", "the limit is not obeyed: lowering it would change nothing"


class Alert(StrEnum):
    """What the rule says about the tenant; unknown when its query failed, or its data is stale or missing."""

    ACTIVE = "active"
    GONE = "gone"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """What is decided. ``hold`` renews the lease, ``wait`` leaves all as it is, ``skip`` refuses to act."""

    THROTTLE = "throttle"
    HOLD = "hold"
    RELAX = "relax"
    RELEASE = "release"
    SKIP = "skip"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator agreed to. Rates in messages/s, all times in seconds.

    ``law`` is a name of :mod:`alerts.laws.registry`, ``own`` that law where it is judged by a signal of its own.
    ``rate`` replaces the fair share as the base where it is set; ``share`` multiplies the fair share. ``drain_seconds``
    is how soon a backlog should be gone.
    """

    law: str
    priority: str
    bounds: Bounds
    cooldown_seconds: float
    lease_seconds: float
    min_coverage: float
    max_staleness_seconds: float
    target_seconds: float
    rate: float | None = None
    share: float = 1.0
    release_margin: float = 0.25
    drain_seconds: float = 60.0
    hold_seconds: float = 300.0
    effect_seconds: float = 15.0
    own: Law | None = None


@dataclass(frozen=True, slots=True)
class Harm:
    """Since when quiet tenants are seen to wait longer than the target, by data that told of ``told_at`` then, and the
    queue's backlog; at a look of a second ago, or the first (``finish_at``), consumers finished ``finish_rate`` a
    second. What the tenant and the others usually sent is of the time before it; ``others_most`` is the most that the
    others have sent since. Where nobody waits so long now, ``since`` is infinite, and what was usual (at ``usual_at``)
    is remembered for a while."""

    since: float
    backlog: float
    finish_rate: float
    usual_rate: float | None = None
    others_usual: float | None = None
    others_most: float = 0.0
    usual_at: float = 0.0
    told_at: float = -math.inf
    finish_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class Watch:
    """The backlog at an earlier look, and how many looks in a row found it shrinking too slowly."""

    backlog: float
    at: float
    strikes: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit in force and what the next decision must remember of it. Instants are seconds on one clock.

    ``rose_from`` is what it was before it rose lest servers idle, where nothing else changed it since. ``base`` is the
    tenant's share, as it was reckoned at ``base_at``.
    """

    rate: float
    base: float
    changed_at: float
    valid_until: float
    arrival_before: float
    alert_active: bool = True
    gone_since: float | None = None
    watch: Watch | None = None
    obeyed: bool | None = None
    rose_from: float | None = None
    base_at: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision: ``limit`` is what is in force afterwards (None: pass-through), ``code`` the reason's stable name.

    ``harm`` is to be handed to the next decision about the tenant as long as there is no limit, ``memory`` always: what
    a law of its own remembers (:class:`alerts.laws.signalled.Memory`). A first limit that harm asks for comes
    ``harmed_seconds`` after that was first seen.
    """

    kind: Kind
    limit: Limit | None
    code: str
    reason: str
    harm: Harm | None = None
    memory: Any = None
    harmed_seconds: float | None = None


def untrusted(terms: Terms, seen: Observation | None) -> tuple[str, str] | None:
    """Why ``seen`` is no ground to act on, as (code, reason); None if it is one."""
    if seen is None:
        return "no_data", "the queue is not in the metrics"
    if seen.data_age_seconds is None or seen.data_age_seconds > terms.max_staleness_seconds:
        return "stale_data", f"the newest event is {_seconds(seen.data_age_seconds)} old"
    if seen.data_age_seconds < -CLOCK_TOLERANCE or (seen.sample_age_seconds or 0.0) < -CLOCK_TOLERANCE:
        return "future_data", f"the newest event is {-seen.data_age_seconds:.0f} s ahead of this clock: no age is known"
    if seen.depth is None or seen.sample_age_seconds is None:
        return "no_sample", "the broker's own count is missing: events cannot be checked against it"
    if seen.sample_age_seconds > terms.max_staleness_seconds:
        return "stale_sample", f"the broker's own count is {_seconds(seen.sample_age_seconds)} old"
    total = max(seen.depth, seen.backlog / seen.coverage if seen.coverage else 0.0)
    if total < SMALL_BACKLOG:
        return None
    if seen.coverage is None:
        return "no_coverage", "how far events can be trusted is unknown"
    if seen.coverage < terms.min_coverage and (1 - seen.coverage) * total > COUNTED_APART * seen.throughput:
        return (
            "low_coverage",
            f"events show {seen.coverage:.0%} of the broker's count, {terms.min_coverage:.0%} is needed",
        )
    return None


def is_unused(terms: Terms, seen: Observation, current: Limit) -> bool:
    """Whether the limit is well above what the tenant sends."""
    return current.rate >= seen.arrival_rate * (1 + terms.release_margin)


def unused(seen: Observation, current: Limit) -> Verdict:
    """The end of a limit that nobody uses."""
    reason = f"the tenant asks for {seen.arrival_rate:.4g}/s of the {current.rate:.4g}/s that it may send"
    return Verdict(Kind.RELEASE, None, "unused", reason)


def obeyed(terms: Terms, seen: Observation, current: Limit, now: float) -> bool | None:
    """Whether the tenant's arrivals followed the limit at least half of the way; None until they had the time to.

    Half, because several producers of one tenant each keep the limit, and a burst may go through.
    """
    if now - current.changed_at < terms.effect_seconds:
        return current.obeyed
    half_way = (max(current.arrival_before, current.rate) + current.rate) / 2
    return seen.arrival_rate <= max(1.5 * current.rate, half_way)


def renewed(terms: Terms, current: Limit, now: float, code: str, reason: str) -> Verdict:
    """The limit as it is; its lease renewed once half of it is over."""
    if current.valid_until - now > terms.lease_seconds / 2:
        return Verdict(Kind.WAIT, current, code, reason)
    return Verdict(Kind.HOLD, replace(current, valid_until=now + terms.lease_seconds), code, reason)


def changed(terms: Terms, current: Limit, kind: Kind, rate: float, now: float, code: str, reason: str) -> Verdict:
    """The limit at another rate, with a lease and a cooldown of its own."""
    limit = replace(
        current, rate=rate, changed_at=now, valid_until=now + terms.lease_seconds, watch=None, rose_from=None
    )
    return Verdict(kind, limit, code, reason)


def _seconds(value: float | None) -> str:
    return "of unknown age" if value is None else f"{value:.0f} s"
