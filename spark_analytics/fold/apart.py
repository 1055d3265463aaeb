"""Queues that are folded apart from the rest of their broker.

Nothing of one queue changes another, but for what its dead-letter queues hold. So what comes too late for one to be
told where it belongs is no reason to fold the others again: it leaves its broker's fold for one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_analytics.fold.fold import Fold
from spark_analytics.fold.pauses import Mark, Pauses
from spark_analytics.fold.state import BACKLOG


@dataclass(slots=True)
class Apart:
    """A fold, and what is remembered of the pauses of its messages."""

    fold: Fold
    pauses: Pauses

    @classmethod
    def of(cls, whole: Fold, queue: str, fold: Fold) -> Apart:
        """``fold``, an empty one, made to be that of ``queue`` alone, which is a part of ``whole``."""
        fold.only = frozenset({queue})
        fold.as_of_us = whole.as_of_us
        fold.opened_until = whole.opened_until
        return cls(fold, Pauses())


class Aparts:
    """The queues of a lake that are folded apart."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Apart]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def of(self, broker: str) -> Mapping[str, Apart]:
        """Those of ``broker``, by queue."""
        return self._of.get(broker, {})

    def folds(self) -> Iterator[tuple[str, Fold]]:
        """(broker, fold) of all of them."""
        return ((broker, part.fold) for broker, parts in self._of.items() for part in parts.values())

    def put(self, broker: str, queue: str, part: Apart, whole: Fold) -> None:
        """``part`` has ``queue`` from now on, no longer ``whole``, that of the broker, or another part."""
        self._of.setdefault(broker, {})[queue] = part
        whole.left_out.add(queue)
        whole.late.pop(queue, None)

    def reach(self, broker: str, as_of_us: int) -> None:
        """Data time of ``broker`` is ``as_of_us`` from now on."""
        for part in self.of(broker).values():
            part.fold.reach(as_of_us)

    def step_now(self, broker: str, whole: Fold) -> None:
        """Have all folds of ``broker`` take a step at data time, where ``whole`` is not all there is."""
        for part in self.of(broker).values():
            step_now(part.fold)
        if self.of(broker):
            step_now(whole)

    def rows(self, broker: str, whole: Fold, rows: pa.Table) -> Iterator[tuple[Fold, pa.Table]]:
        """``rows`` of partials of ``broker`` by the fold that takes them in; ``whole`` is the broker's own."""
        parts = self.of(broker)
        if not parts:
            yield whole, rows
            return
        others = pc.invert(pc.is_in(rows.column("queue").cast(pa.string()), pa.array(list(parts), pa.string())))
        its = [(whole, rows.filter(others))]
        its += [(part.fold, rows_about(queue, broker, rows)) for queue, part in parts.items()]
        yield from ((fold, mine) for fold, mine in its if mine.num_rows)

    def marks(self, broker: str, whole: Apart, marks: list[Mark]) -> Iterator[tuple[Apart, list[Mark]]]:
        """``marks`` of ``broker`` by who takes them in; ``whole`` has what is not apart."""
        parts = self.of(broker)
        yield whole, [mark for mark in marks if mark.queue not in parts]
        for queue, part in parts.items():
            yield part, [mark for mark in marks if mark.queue == queue]

    def samples(self, rows: pa.Table) -> Iterator[tuple[str, Fold, pa.Table]]:
        """``rows`` of samples by (broker, fold) that takes them in beside the fold of the broker."""
        for broker, parts in self._of.items():
            for queue, part in parts.items():
                if (its := samples_about(queue, broker, rows)).num_rows:
                    yield broker, part.fold, its


def step_now(fold: Fold) -> None:
    """Have a step at data time, though it may be another queue's, as long as anything changes with time."""
    state, now = fold.state, fold.now_second
    moving = fold.due or state.window.any() or fold.readings.known.any() or state.queues[:, BACKLOG].any()
    if moving and now > fold.floor and not (fold.done and fold.done[-1].second >= now):
        fold.expect(now)


def rows_about(queue: str, broker: str, rows: pa.Table) -> pa.Table:
    """Those of ``rows`` that are about ``queue`` of ``broker``."""
    return rows.filter(pc.and_(pc.equal(rows.column("broker"), broker), pc.equal(rows.column("queue"), queue)))


def samples_about(queue: str, broker: str, rows: pa.Table) -> pa.Table:
    """Those of the samples ``rows`` that tell about ``queue`` of ``broker``, or about a dead-letter queue of it."""
    serves = pc.fill_null(pc.match_substring(rows.column("dead_letter_for"), queue), False)
    about = pc.or_(pc.equal(rows.column("queue"), queue), serves)
    return rows.filter(pc.and_(pc.equal(rows.column("broker"), broker), about))
