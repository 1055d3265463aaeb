"""What is foretold of one queue, from its newest flows: when it is drained, when who comes waits beyond the target,
when retention overtakes what nobody has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lake.forecast import FEWEST, Forecast, breached, drained, overtaken
from lake.why.law import Bin
from lake.why.reading import STEP, Query, flows

#: As many bins as the intervals were set with (docs/forecasts.md), and one more, which may not be whole yet.
BINS = 18


@dataclass(frozen=True, slots=True)
class Foretold:
    """Forecasts of one queue, in seconds from its data time on; ``reason``: why there are none, in words.

    ``retention`` is when the broker deletes messages that nobody has read; None where it does not, or nobody knows.
    ``known``: the seconds of flow that they are made from.
    """

    drained: Forecast | None
    breached: Forecast | None
    known: int
    reason: str = ""
    retention: Forecast | None = None


def foretell(
    query: Query,
    broker: str,
    queue: str,
    subscriber: str,
    *,
    as_of: datetime,
    ready: int | None,
    target: float,
    margin: int | None = None,
) -> Foretold:
    """What is foretold of the queue of which ``ready`` messages wait at ``as_of``; ``target`` in seconds, ``margin``
    messages from the oldest unread one to what retention deletes."""
    if ready is None:
        return Foretold(None, None, 0, "what waits is unknown")
    if ready == 0:
        return Foretold(None, None, 0, "nothing waits")
    end = int(as_of.timestamp())  # the second that is under way is not whole
    bins, _ = flows(query, broker, queue, subscriber, end, STEP * BINS)
    mine = waiting_throughout(bins, ready)
    if len(mine) < FEWEST:
        seconds = sum(one.seconds for one in mine)
        needed = FEWEST * (mine[0].seconds if mine else STEP)
        return Foretold(
            None, None, seconds, f"messages have waited for {seconds} s without a break, {needed} are needed"
        )
    came, went = [one.arrivals for one in mine], [one.starts for one in mine]
    step = mine[0].seconds
    gone, late = drained(ready, came, went, step), breached(ready, target, came, went, step)
    lost = None if margin is None else overtaken(max(0, margin), came, went, step)
    return Foretold(gone, late, step * len(mine), retention=lost)


def waiting_throughout(bins: Sequence[Bin], ready: int) -> list[Bin]:
    """The newest ``bins`` at whose beginning some waited already, by what came and began since."""
    waited, found = float(ready), []
    for one in reversed(bins):
        waited -= one.arrivals - one.starts
        if waited <= 0:
            break
        found.append(one)
    return found[::-1]
