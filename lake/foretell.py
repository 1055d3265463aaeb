"""What is foretold of one queue, from its newest flows: when it is drained, when who comes waits beyond the target,
when retention overtakes what nobody has read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lake.forecast import FEWEST, Forecast, breached, drained, overtaken
from lake.sql.parameters import can_be_named
from lake.why.law import Bin
from lake.why.reading import STEP, Name, Query, flows_of_all

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


@dataclass(frozen=True, slots=True)
class Asked:
    """A queue of which ``ready`` messages wait at ``as_of`` (None: unknown).

    ``margin``: messages from the oldest unread one to what retention deletes; None where it deletes none, or nobody
    knows.
    """

    broker: str
    queue: str
    subscriber: str
    as_of: datetime
    ready: int | None
    margin: int | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any], ready: int | None) -> Asked:
        """The queue of a ``row`` of ``queue_health_now``."""
        subscriber = row["subscriber"] or ""
        return cls(row["broker"], row["queue"], subscriber, row["as_of"], ready, row["retention_margin"])

    @property
    def name(self) -> Name:
        """What names it."""
        return self.broker, self.queue, self.subscriber

    @property
    def end(self) -> int:
        """Up to which unix second flows count: the one that is under way is not whole."""
        return int(self.as_of.timestamp())

    @property
    def reason(self) -> str:
        """Why nothing can be foretold whatever flows; empty where something may."""
        if self.ready is None:
            return "what waits is unknown"
        return "" if self.ready else "nothing waits"


def foretell(query: Query, asked: Asked, target: float) -> Foretold:
    """What is foretold of the queue that is ``asked`` about; ``target`` in seconds."""
    return foretell_all(query, [asked], target)[asked.name]


def foretell_all(query: Query, queues: Iterable[Asked], target: float) -> dict[Name, Foretold]:
    """The same of many queues, by one statement; one that no statement can name has its reason."""
    found: dict[Name, Foretold] = {}
    asked: dict[Name, tuple[Asked, int]] = {}
    for one in queues:
        reason = one.reason if can_be_named(*one.name) else "no statement can hold its name"
        if reason or one.ready is None:
            found[one.name] = Foretold(None, None, 0, reason)
        else:
            asked[one.name] = one, one.ready
    bins = flows_of_all(query, {name: one.end for name, (one, _) in asked.items()}, STEP * BINS)
    return found | {name: _from(bins[name], ready, target, one.margin) for name, (one, ready) in asked.items()}


def _from(bins: Sequence[Bin], ready: int, target: float, margin: int | None) -> Foretold:
    """What the newest flows of a queue, in ``bins``, foretell of it."""
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
