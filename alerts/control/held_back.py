"""What counts of a second ago say of those who are held back: they send what they may, and ask for more.

Where brokers tell how many messages wait, entitlements bind within tenths of a second, and change as often. Taken at
their word, counts then have a flood let go, and all that its producers held meanwhile comes at once:

* It was held a quarter of a second after it began, before metrics told of it, and since keeps within its share.
* While the queue drains it may send so little that in some look it sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from alerts.laws.entitled_queue import EntitledQueue, Look
from alerts.laws.entitlement import LET_GO, in_work, protects

#: The share of whoever was never seen.
ANYBODY = "*"
#: Who is held for less than this says nothing by what it sends (seconds).
LEAST_SECONDS = 0.5
#: Who is held and sends nothing is there for so long (seconds).
SILENT_SECONDS = 3.0
#: Who sends so many times what it lately did, and so many standard deviations more, has risen by more than chance; a
#: large tenant that sends what it always does has not.
RISEN, DEVIATIONS = 1.25, 3.0


def bound(law: EntitledQueue) -> dict[str, float]:
    """What those may send who are bound, by unit, as the law counts it: who is held, or everybody while it is not known
    who floods."""
    if law.state.presumed_since is None:
        return {unit: law.shares[unit] for unit in law.state.held if unit in law.shares}
    return law.shares | {ANYBODY: law.anybody * law.costs.mean}


def who_was_held_back(
    law: EntitledQueue,
    one: Look,
    allowed: Mapping[str, tuple[float, float]],
    usual: Mapping[str, float],
    seconds: float,
) -> dict[str, float]:
    """Who sent half of what it might, and more than is ``usual`` of it, over ``seconds`` of ``one``, and what each asks
    for; nobody where none is protected if those keep to their shares.

    ``allowed`` is what each unit might send while it was bound, and for how many of these seconds it was. What one asks
    for shows in what it sent before.
    """
    sent = in_work(one.waiting, one.finished, one.arrivals, law.costs, law.units_of(one.arrivals)).arrivals
    asked: dict[str, float] = {}
    for unit, rate in sent.items():
        might, held = _might(unit, allowed)
        before, free = usual.get(unit, 0.0), seconds - held
        while_held = rate * seconds - before * free
        if held >= LEAST_SECONDS and while_held >= LET_GO * might and _risen(rate, before, law.costs.of(unit), seconds):
            asked[unit] = max(rate, (rate * seconds - might) / free) if free >= LEAST_SECONDS else rate
    return asked if protects(law.state.capacity, frozenset(asked), {**sent, **asked}) else {}


def _risen(rate: float, before: float, cost: float, seconds: float) -> bool:
    """Whether work comes at a higher ``rate`` than ``before`` by more than chance; ``cost`` is that of a message."""
    deviation = math.sqrt(max(1.0, before * seconds / cost)) * cost
    return rate >= RISEN * before and (rate - before) * seconds >= DEVIATIONS * deviation


def _might(unit: str, allowed: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """How much ``unit`` might send while it was bound, and for how many seconds it was: as one that was never seen,
    until it was."""
    share, held = allowed.get(unit, (0.0, 0.0))
    of_anybody, before = allowed.get(ANYBODY, (0.0, 0.0))
    unseen = max(0.0, before - held)
    return share * held + of_anybody * unseen, held + unseen


def with_the_silent(
    law: EntitledQueue,
    arrivals: Mapping[str, float],
    allowed: Mapping[str, tuple[float, float]],
    sent: dict[str, float],
    now: float,
) -> dict[str, float]:
    """``arrivals`` (messages a second, by tenant), and of units that are held and sent nothing what they might.

    ``sent`` is when each of those that are held was last seen to send (seconds), and is brought up to date.
    """
    found = dict(arrivals)
    for unit in [unit for unit in sent if unit not in law.state.held]:
        del sent[unit]
    for unit in law.state.held:
        names = list(law.members.get(unit, ())) or [unit]
        if any(arrivals.get(name, 0.0) > 0 for name in names):
            sent[unit] = now
        elif now - sent.setdefault(unit, now) <= SILENT_SECONDS:
            share, _ = allowed.get(unit, (law.shares.get(unit, 0.0), 0.0))
            found |= {name: share / len(names) / law.costs.of(name) for name in names}
    return found
