"""One request's worth of events, summaries and counts: encoded once, and sent unchanged until it is accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from sojourn.client.events import Event
from sojourn.client.publishes import PublishCount

#: What a batch holds, by name.
LISTS = ("events", "summaries", "polls", "publishes")


@dataclass(slots=True)
class Batch:
    """``conflated`` is how many events its ``summaries`` stand for.

    ``held`` is how many the format needs no piece for: what it says of them goes with a later event of the attempt.
    """

    sequence: int
    events: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    polls: list[str] = field(default_factory=list)
    publishes: list[str] = field(default_factory=list)
    conflated: int = 0
    held: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in LISTS)

    @property
    def stands_for(self) -> int:
        """How many events it tells of, single or summarised."""
        return len(self.events) + self.conflated + self.held

    def split(self) -> tuple[Batch, Batch] | None:
        """Two halves, where the whole was too large for the collector; None where it is one thing already.

        The first keeps the number, for nothing of the whole was accepted; the second's is the sender's to give.
        """
        if sum(len(getattr(self, name)) for name in LISTS) < 2:
            return None
        first, second = Batch(self.sequence, held=self.held), Batch(-1)
        for name in LISTS:
            things = getattr(self, name)
            # What is single goes to the half that has less.
            middle = (len(things) + (not first)) // 2
            setattr(first, name, things[:middle])
            setattr(second, name, things[middle:])
        # Which half stands for how many of the conflated is only a matter of counting: shares by summaries.
        share = len(first.summaries) / len(self.summaries) if self.summaries else 1.0
        first.conflated = round(self.conflated * share)
        second.conflated = self.conflated - first.conflated
        return first, second


class Format(Protocol):
    """A way to write batches, and to read what the other side says about them."""

    path: str

    def event(self, event: Event) -> str | None:
        """One event, encoded; None where a later event of the same attempt will tell of it, too."""

    def summary(self, row: dict[str, Any]) -> str:
        """One row of ``event_summaries``, encoded."""

    def poll(self, broker: str, queue: str, subscriber: str | None, polls: int, empty: int) -> str:
        """What one consumer polled since it was last told, encoded."""

    def publishes(self, broker: str, queue: str, until: int, count: PublishCount) -> str:
        """What became of publishes to one queue since they were last told, ``until`` then (microseconds), encoded."""

    def body(self, batch: Batch, sender: str) -> bytes:
        """The body of one request."""

    def refused(self, answer: dict[str, Any]) -> tuple[int, str]:
        """How many events of an accepted batch were not taken, and why the first."""
