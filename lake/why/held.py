"""Tenants whose messages wait in the queue because a limit of ours slows down who reads them: throttled by us.

Their first attempts wait longer than everybody else's; what they add to the mean wait beyond that is not the queue's.
Some of it is: a flood would have piled up unlimited, too. So it is told apart by what the limit kept slots from doing.
With g messages of theirs left since it began, and l messages that slots with nothing to do could have begun
while they were held and nobody else needed, l ÷ g of it, all at most, is throttled by us, and the rest is
their arrivals.

A consumer that reads held tenants alone, as NATS' are that can be held, has nobody beside them to compare with. Of its
slots those that have nothing to do while it is held are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from lake.why.law import Bin, Cause, Part, Rise, explain, idle, wait_of


@dataclass(frozen=True, slots=True)
class Hold:
    """A limit of one tenant, by ``actuator``, from ``begun`` to ``ended`` (unix seconds).

    ``in_queue``: it slows down who reads, so that what it holds back waits in the queue; else it is not known to, and
    what obeys it waits with its producers. ``rate``: messages/s, where it is one.
    """

    tenant: str
    actuator: str
    begun: float
    ended: float
    in_queue: bool
    rate: float | None = None


def with_holds(rise: Rise, bins: Sequence[Bin], held: Sequence[Bin], ready: float, holds: Iterable[Hold]) -> Rise:
    """``rise`` with what ``holds`` in the queue have to do with it told apart; as it was where they have nothing to, or
    nobody knows: no first attempt of others, who are there, tells how long one waits without.

    ``bins`` are the queue's, ``held`` those of the tenants that are held, one for one; ``ready``: what waits of others.
    """
    edge = 2
    others = [_without(all_, theirs) for all_, theirs in zip(bins, held, strict=True)]
    spans = [(one.begun, one.ended) for one in holds if one.in_queue]
    places = [
        place
        for place, each in enumerate(bins)
        if rise.begun <= each.end - each.seconds / 2 and any(a <= each.end - each.seconds / 2 < b for a, b in spans)
    ]
    if not places:
        return rise
    if not any(each.arrivals or each.starts for each in others):
        return _of_nobody_else(rise, bins, places)
    before = [place for place, each in enumerate(bins) if each.end <= rise.begun][-edge:]
    was, now = _added(bins, others, before), _added(bins, others, range(len(bins) - edge, len(bins)))
    if was is None or now is None or now <= was:
        return rise
    begun = next(place for place, each in enumerate(bins) if each.end > rise.begun)
    left = sum(each.arrivals - each.starts for each in held[begun : places[-1] + 1])
    needed = max(0.0, sum(others[place].arrivals - others[place].starts for place in places))
    unused = idle(bins, [bins[place] for place in places])
    if left < 1 or unused is None or unused <= needed:
        return rise
    messages = min(left, unused - needed)
    throttled = (now - was) * messages / left
    rest = explain(others, ready, edge=edge)
    rest_parts = () if rest is None else _at_work_for_others(rest, bins)
    return _summed(rise, rest_parts, Part(Cause.THROTTLED, messages, throttled), (now - was) - throttled)


def _of_nobody_else(rise: Rise, bins: Sequence[Bin], places: Sequence[int]) -> Rise:
    """``rise`` of a consumer that reads held tenants alone: of its missing slots, those are ours that had nothing to do
    in ``places``, of all that had nothing to do since the waiting began."""
    slots = next((each for each in rise.parts if each.cause is Cause.SLOTS and each.seconds > 0), None)
    since = idle(bins, [each for each in bins if each.end > rise.begun])
    unused = idle(bins, [bins[place] for place in places])
    if slots is None or not since or not unused:
        return rise
    own = {each.cause: each for each in rise.parts}
    arrivals, unknown = own[Cause.ARRIVALS], own.pop(Cause.UNKNOWN)
    if arrivals.seconds < 0:  # fewer came than it could take: some of these slots would have had nothing to do anyway
        spare = min(slots.seconds, -arrivals.seconds)
        own[Cause.ARRIVALS] = replace(arrivals, messages=None, seconds=arrivals.seconds + spare)
        slots = _scaled(slots, 1 - spare / slots.seconds)
    part = min(1.0, unused / since)
    own[Cause.SLOTS] = _scaled(slots, 1 - part)
    ours = _scaled(Part(Cause.THROTTLED, slots.messages, slots.seconds), part)
    return replace(rise, parts=(*own.values(), ours, unknown))


def _scaled(one: Part, by: float) -> Part:
    return replace(one, messages=None if one.messages is None else by * one.messages, seconds=by * one.seconds)


def _at_work_for_others(rest: Rise, bins: Sequence[Bin]) -> tuple[Part, ...]:
    """The parts of ``rest`` with no more slots missing than had nothing to do: others worked for who was held."""
    unused = idle(bins, [each for each in bins if rest.begun < each.end <= rest.end]) or 0.0
    found = []
    for each in rest.parts:
        if each.cause is Cause.SLOTS and each.messages is not None and each.messages > unused:
            each = replace(each, messages=unused, seconds=each.seconds * unused / each.messages)
        found.append(each)
    return tuple(found)


def _summed(rise: Rise, rest: Sequence[Part], throttled: Part, flood: float) -> Rise:
    """``rise`` in the parts of the ``rest`` of the queue, what is ``throttled``, and seconds of the held tenants' own
    ``flood``. What that leaves of it, or takes too much, is unknown."""
    own = {part.cause: part for part in rise.parts}
    arrivals = Part(Cause.ARRIVALS, None, 0.0, own[Cause.ARRIVALS].before, own[Cause.ARRIVALS].now)
    found = {Cause.ARRIVALS: arrivals} | {each.cause: each for each in rest}
    found.pop(Cause.UNKNOWN, None)
    found[Cause.ARRIVALS] = replace(arrivals, seconds=found[Cause.ARRIVALS].seconds + flood)
    parts = [*found.values(), throttled]
    unknown = Part(Cause.UNKNOWN, None, rise.seconds - sum(part.seconds for part in parts))
    return replace(rise, parts=(*parts, unknown))


def _added(bins: Sequence[Bin], others: Sequence[Bin], places: Iterable[int]) -> float | None:
    """By how much the held tenants' first attempts lengthen the mean wait of all, beyond that of the others."""
    at = list(places)
    whole, without = wait_of([bins[place] for place in at]), wait_of([others[place] for place in at])
    return None if whole is None or without is None else whole - without


def _without(whole: Bin, theirs: Bin) -> Bin:
    sums = {
        each.name: max(0.0, getattr(whole, each.name) - getattr(theirs, each.name))
        for each in fields(Bin)
        if each.name not in ("end", "seconds")
    }
    return Bin(whole.end, whole.seconds, **sums)
