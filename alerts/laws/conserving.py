"""No server is to idle while messages are held: limits rise without waiting for the cooldown, as far as nothing queues.

What is too much of it is taken back as soon, before anybody suffers.
"""

from __future__ import annotations

import math
from dataclasses import replace

from alerts.laws.limits import Kind, Limit, Terms, Verdict, changed
from alerts.laws.observation import Observation
from alerts.laws.share import STEADY, less, next_to_nothing, suffers

#: A limit counts as used up from this part of it on.
USED_UP = 0.8
#: After so many seconds it is seen what a change brought, or after so many times what metrics lag behind.
PROBE_SECONDS, PROBE_LAGS = 1.0, 2.0
#: Where nothing waits, what consumers can is not known: a limit rises on by this part of the throughput, twice as much
#: each time that still nothing waits. Less than so many deviations of what a second brings is nothing.
PROBING, PROBING_FASTER, NOTHING = 0.03, 2.0, 0.5
#: A limit that rose is kept where so many deviations of what a second brings wait, and what waits beyond is drained
#: within so many seconds: longer than it takes to see what a change brought, lest limits swing.
ROOM, SETTLE_SECONDS = 1.0, 5.0
#: Every change wakes clients: less than this part of the throughput, or of the limit itself, is not worth one.
WORTH_OF_THROUGHPUT, WORTH_OF_LIMIT = 0.02, 0.05


def work_conserved(terms: Terms, seen: Observation, current: Limit, now: float) -> Verdict | None:
    """A limit that rises because servers may idle while the tenant is held back; None where that is not so.

    Below its share it rises as soon as what waits will be gone before it can be there. It does not wait for the
    cooldown. It rises as far as nothing queues: beyond its share by little, and by more while still nothing waits, for
    what consumers can finish shows only once something does.
    """
    if terms.rate is not None and terms.law != "aimd":  # the operator set it, to be kept
        return None
    if seen.ready is None or now - current.changed_at < _seen_after(seen) or not is_used_up(terms, seen, current, now):
        return None
    idles = seen.waiting <= next_to_nothing(terms, seen) and not suffers(terms, seen)
    if not idles and not _climbs_in_time(terms, seen, current):
        return None
    wanted, base = _settled(terms, seen, current.base), current.base
    if idles and seen.waiting <= NOTHING * math.sqrt(seen.throughput):
        taken = current.rate if current.rose_from is None else current.rose_from  # so much consumers were seen to take
        base = max(base, taken)
        if current.rate >= current.base:
            wanted = max(_settled(terms, seen, base), current.rate + _probe(seen, current, now))
    elif not idles and current.rate * (1 + terms.bounds.max_step) < base:  # it takes more than this step to be there
        wanted = base
    rate = terms.bounds.step(current.rate, wanted)
    if idles and rate >= terms.bounds.ceiling:
        return Verdict(Kind.RELEASE, None, "ceiling", f"the limit reached its ceiling of {terms.bounds.ceiling:g}/s")
    if rate < current.rate + _worth(seen, current):
        return None
    few = idles or round(seen.waiting) == 0
    why = "next to nothing waits" if few else f"the {seen.waiting:.0f} messages that wait will soon be gone"
    reason = f"{why} and it sends all of the {current.rate:.4g}/s that it may: servers may idle"
    verdict = changed(terms, replace(current, base=base), Kind.RELAX, rate, now, "idle", reason)
    return replace(verdict, limit=verdict.limit and replace(verdict.limit, rose_from=current.rate))


def taken_back(terms: Terms, seen: Observation, current: Limit, now: float) -> Verdict | None:
    """A limit that rose lest servers idle, by more than they can take: lowered before anybody suffers from it. None
    where that is not so.

    It does not wait for the cooldown, as the rise did not: in a cooldown's time the excess would become harm.
    """
    if current.rose_from is None or current.obeyed is False or now - current.changed_at < _seen_after(seen):
        return None
    if seen.waiting <= next_to_nothing(terms, seen) + math.sqrt(seen.throughput):
        return None
    goal = _settled(terms, seen, current.base)
    if goal > current.rate - _worth(seen, current):
        return None
    rate = terms.bounds.step(current.rate, goal)
    reason = f"{seen.waiting:.0f} messages wait since it rose; to {goal:.4g}/s while they are drained"
    verdict = changed(terms, current, Kind.THROTTLE, rate, now, "overshot", reason)
    return replace(verdict, limit=verdict.limit and replace(verdict.limit, rose_from=min(current.rose_from, rate)))


def _seen_after(seen: Observation) -> float:
    """How long it takes until it is seen what a change brought (seconds)."""
    return max(PROBE_SECONDS, PROBE_LAGS * (seen.data_age_seconds or 0.0))


def _probe(seen: Observation, current: Limit, now: float) -> float:
    """By how much (messages/s) a limit rises beyond its share while nothing waits."""
    probe = PROBING * seen.throughput / seen.cost
    if current.rose_from is None or now - current.changed_at >= 2 * _seen_after(seen):
        return probe
    return max(probe, PROBING_FASTER * (current.rate - current.rose_from))


def _settled(terms: Terms, seen: Observation, base: float) -> float:
    """The limit by which as much waits as chance brings anyhow, and no more for long: a regulator in proportion to what
    waits, on a share that is measured. An equal share at the least."""
    beyond = seen.waiting - ROOM * math.sqrt(seen.throughput)
    return less(terms, seen, base, beyond / SETTLE_SECONDS / seen.cost)


def _worth(seen: Observation, current: Limit) -> float:
    """By how much a limit has to change that clients are told of it."""
    return min(WORTH_OF_THROUGHPUT * seen.throughput / seen.cost, WORTH_OF_LIMIT * current.rate)


def _climbs_in_time(terms: Terms, seen: Observation, current: Limit) -> bool:
    """Whether a limit below its share has to rise now to be there when nothing waits any more.

    A step takes until it is seen what it brought, and the first as long again to be heard of; meanwhile consumers
    finish of what waits as much as the limit lacks to the share. Only what is seen to drain is about to be gone. A law
    that follows ages stays below the share as long as they are above the target.
    """
    if terms.law == "inverse_backlog" or current.rate >= current.base:
        return False
    comes = seen.arrival_rate * seen.cost + seen.others_rate * seen.others_cost
    if seen.finish_rate < STEADY * seen.completion_rate or seen.finish_rate <= comes:
        return False
    growth = 1 + terms.bounds.max_step
    steps = math.ceil(math.log(current.base / current.rate) / math.log(growth))
    lacks = steps * current.base - current.rate * (growth**steps - 1) / terms.bounds.max_step
    return seen.waiting <= _seen_after(seen) * lacks * seen.cost + next_to_nothing(terms, seen)


def is_used_up(terms: Terms, seen: Observation, current: Limit, now: float) -> bool:
    """Whether the tenant sends about all that it may: servers may idle for its limit. A limit that has just risen, or
    is on its way back to its share, has risen by a step more than arrivals show yet."""
    before = current.rate / (1 + terms.bounds.max_step) if current.rate < current.base else current.rate
    if current.rose_from is not None and now - current.changed_at < _seen_after(seen) + seen.recent_seconds:
        before = min(before, current.rose_from)
    return seen.arrival_rate >= USED_UP * before
