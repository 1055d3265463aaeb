"""Of whom rows were told, and which queues have turned out to have other consumers since.

Who consumes a queue shows late: its first attempt may come long after the first message, its second group a year later.
All of its past is another one then, which the view of history has at once; what was told of it has to be corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lake.finished import QUEUE_STATE
from lake.state.held import Held
from spark_analytics.fold.cells import NONE
from spark_analytics.fold.fold import Fold

#: (broker, queue)
Place = tuple[str, str]
_COLUMNS = ("broker", "queue", "subscriber", "second", "has_events", "sampled_us")


class Consumers:
    """By (broker, queue) whom events were told of, and whom samples; and by broker the newest ``second`` told."""

    def __init__(self) -> None:
        self.events: dict[Place, set[str]] = {}
        self.samples: dict[Place, set[str]] = {}
        self.second: dict[str, int] = {}

    @classmethod
    def written(cls, root: Path) -> Consumers:
        """As the newest epoch in gold of the lake at ``root`` has them."""
        held, told = Held(QUEUE_STATE.name, root, _COLUMNS), cls()
        held.refresh()
        columns = [held.rows.column(name).to_pylist() for name in _COLUMNS]
        for broker, queue, subscriber, second, has_events, sampled_us in zip(*columns, strict=True):
            told.note((broker, queue), subscriber or "", has_events=has_events, sampled=sampled_us is not None)
            if second is not None:
                told.second[broker] = max(second, told.second.get(broker, -1))
        return told

    @classmethod
    def of(cls, folds: Iterable[tuple[str, Fold]]) -> Consumers:
        """As ``folds``, each with its broker, have them."""
        told = cls()
        for broker, fold in folds:
            first, newest = fold.state.first_second, fold.readings.newest["sampled_us"]
            for number, (queue, subscriber) in enumerate(fold.state.consumers):
                sampled = number < len(newest) and bool(newest[number] > 0)
                told.note((broker, queue), subscriber, has_events=bool(first[number] != NONE), sampled=sampled)
        return told

    def note(self, place: Place, subscriber: str, *, has_events: bool, sampled: bool) -> None:
        """Something was told of ``subscriber`` of ``place``, '' for the unnamed one."""
        for known, whether in ((self.events, has_events), (self.samples, sampled)):
            if whether:
                known.setdefault(place, set()).add(subscriber)

    def moved(self, now: Consumers, meant: Mapping[Place, set[str]]) -> Iterator[Place]:
        """The queues that are other consumers' ``now`` than they were told to be.

        Samples move between the unnamed consumer, which may have some of its own, and a named one; of a group that is
        gone they only end. ``meant``: whose samples are the unnamed one's now.
        """
        for place in now.events.keys() | now.samples.keys():
            events, since = self.events.get(place, set()), now.events.get(place, set())
            gone, new = (
                one.samples.get(place, set()) - other.samples.get(place, set())
                for one, other in ((self, now), (now, self))
            )
            joined = gone & meant.get(place, set())
            parted = events == {""} and len(new - {""}) > 1  # one of them may have stood for the unnamed one
            if (events and since and events != since) or (gone and new and "" in gone | new) or joined or parted:
                yield place
