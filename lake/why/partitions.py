"""One partition that falls behind alone: slots that have nothing to do meanwhile are lost to it, not to all.

A partition is served by one consumer at a time, so that what waits in it cannot be taken by those whose partitions are
empty. With w of all that waits and a of all that arrives in the partition that is furthest behind, messages that waited
for want of slots did so for that partition's sake in the part (w − a) ÷ (1 − a): all of them where nothing waits
elsewhere, none where each partition has of what waits what it has of arrivals, as when consumers are too few for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lake.why.law import Cause, Part, Rise


@dataclass(frozen=True, slots=True)
class Partition:
    """What arrived in a partition since the waiting began, and first attempts that began: messages."""

    name: str
    arrivals: float
    starts: float

    @property
    def waiting(self) -> float:
        """What is left of that."""
        return max(0.0, self.arrivals - self.starts)


def with_one_partition(rise: Rise, partitions: Iterable[Partition]) -> tuple[Rise, str]:
    """``rise`` with what one partition is to blame for told apart from slots, and that partition's name; as it was and
    '' where there is no such partition, or no slots were lost. The parts add up as before."""
    lost = next((each for each in rise.parts if each.cause is Cause.SLOTS), None)
    known = list(partitions)
    waiting, arrivals = sum(each.waiting for each in known), sum(each.arrivals for each in known)
    if lost is None or lost.messages is None or lost.seconds <= 0 or len(known) < 2 or waiting < 1:
        return rise, ""
    worst = max(known, key=lambda each: (each.waiting, each.name))
    waits, comes = worst.waiting / waiting, worst.arrivals / arrivals
    part = (waits - comes) / (1 - comes) if comes < 1 else 0.0
    if part <= 0:
        return rise, ""
    one = Part(Cause.PARTITION, lost.messages * part, lost.seconds * part, comes, waits)
    rest = replace(lost, messages=lost.messages * (1 - part), seconds=lost.seconds * (1 - part))
    parts = [piece for each in rise.parts for piece in ((rest, one) if each is lost else (each,))]
    return replace(rise, parts=tuple(parts)), worst.name
