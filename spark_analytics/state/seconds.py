"""What the folds pass through, second by second: the rows of finished state that are not as they were.

A row late by less than can be taken back takes a fold back to its second: what was told of that second and later ones
is told again. A key that was told of there is in the first of them, whether or not it differs from the second before,
and in each in which it stood: the newest row of a key and second counts.

What is told of seconds before an epoch's first is a correction: it says from which second on nothing counts any more
that was told of the queue before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spark_analytics.fold.arrays import Array, distinct
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.outcome import Columns, Outcome
from spark_analytics.state.consumers import Consumers
from spark_analytics.state.differ import Differ

_NONE = np.zeros(0, np.int64)
#: How many rows wait at most before they are committed.
MOST_WAITING = 300_000


class Rows(NamedTuple):
    """Rows of one instant: the fold's numbers of what they are about, and their columns."""

    numbers: Array
    columns: Columns


class Second(NamedTuple):
    """The rows of a second."""

    second: int
    tenants: Rows
    queues: Rows


class Part(NamedTuple):
    """The rows that a fold told, ordered by second; ``corrects``: from which second on they are a correction."""

    broker: str
    fold: Fold
    numbers: Array
    columns: Columns
    corrects: int | None


class Taken(NamedTuple):
    """The rows of all folds since the last time; of tenants' rows ``consumer`` is the fold's number of whose it is."""

    tenants: list[Part]
    queues: list[Part]


class Told(NamedTuple):
    """Of which tenants, and which consumers, rows were told in a second."""

    tenants: Array
    queues: Array

    def and_of(self, other: Told) -> Told:
        """Those of both."""
        return Told(distinct(self.tenants, other.tenants), distinct(self.queues, other.queues))


@dataclass
class _Broker:
    """What was told of one broker, or of a queue apart."""

    broker: str
    fold: Fold
    first: int  # second of the epoch: what is told of those before is a correction
    since: int  # that of which all there is was told, and what changed in those after it
    corrects: int | None = None  # from which second on, while such rows wait
    correcting: int | None = None  # before which nothing is told, while all of the past is passed through once more
    tenants: Differ = field(default_factory=Differ)
    queues: Differ = field(default_factory=Differ)
    told: dict[int, Told] = field(default_factory=dict)  # by second, as far back as it can be taken back
    stale: dict[int, Told] = field(default_factory=dict)
    rows: list[Second] = field(default_factory=list)  # not taken yet
    newest: int = -1
    taken: int = -1  # the newest second whose rows were taken

    def begin(self, second: int) -> None:
        """Have rows of all there is in ``second``."""
        self.since = second
        self.tenants, self.queues = Differ(), Differ()

    def again(self, second: int) -> Told:
        """Of what rows have to be told in ``second`` even if they differ from nothing."""
        self.rows = [each for each in self.rows if each.second < second]  # those of it are told again
        back = [each for each in self.told if each >= second]
        for each in back:
            self.stale[each] = self.told.pop(each).and_of(self.stale.get(each, _NOTHING))
        if back and (self.fold.only is not None or self.fold.left_out):  # not each of these seconds comes again
            for each in back:
                self.have_told(self.fold.now_second, self.stale[each])
        mine = self.stale.pop(second, _NOTHING)
        if back:
            for later in self.stale.values():
                mine = mine.and_of(later)
        return mine

    def have_told(self, second: int, what: Told) -> None:
        """Have rows of ``what`` in ``second``, whether or not they differ."""
        self.stale[second] = what.and_of(self.stale.get(second, _NOTHING))

    def forget(self) -> None:
        """Let go of what cannot be taken back any more."""
        for known in (self.told, self.stale):
            for second in [second for second in known if second <= self.fold.floor]:
                del known[second]


_NOTHING = Told(_NONE, _NONE)


class Seconds:
    """Collects rows. ``told``: what somebody told before; ``alone``: nobody else tells of these brokers, so that at
    data time there has to be a row even if nothing changed.

    ``flush`` is called when many wait to be taken, ``ended`` when other folds begin, which number things otherwise.
    """

    def __init__(
        self, told: Consumers, flush: Callable[[], None], ended: Callable[[], None], *, alone: bool = True
    ) -> None:
        self._told = told.second
        self._told_of: Consumers | None = told  # None: they are still those of the folds
        self._since: dict[str, int] = {}  # by broker: folds that begin anew are silent before it
        self._flush, self._ended, self._alone = flush, ended, alone
        self._brokers: dict[Fold, _Broker] = {}
        self._waiting = 0

    def begin(self) -> None:
        """Tell every row there is, as if none had been told."""
        self._told = self.reached()
        self._since, self._brokers, self._waiting = {}, {}, 0

    def reached(self) -> dict[str, int]:
        """By broker the newest second that rows were taken of."""
        reached = dict(self._told)
        for each in self._brokers.values():
            if each.taken >= 0:
                reached[each.broker] = max(each.taken, reached.get(each.broker, -1))
        return reached

    def untold(self, since: Mapping[str, int] | None = None) -> None:
        """What was told of these seconds, by broker, and later ones counts for nothing; of any second by default."""
        told = {} if since is None else self._told
        self._told = {broker: min(second, (since or {}).get(broker, second)) for broker, second in told.items()}

    def anew(self, oldest: dict[str, int] | None) -> None:
        """All of history is about to be folded again, by other folds.

        ``oldest``: by broker the first second of which something has come that was not folded before; None: unknown.
        """
        if self._brokers:
            self._told_of = Consumers.of((each.broker, each.fold) for each in self._brokers.values())
        late = [(each.broker, second) for each in self._brokers.values() for second in each.fold.late.values()]
        self.begin()
        self._since = dict(self._told) if oldest is not None else {}
        for broker, second in (*late, *(oldest or {}).items()):
            if broker in self._since:
                self._since[broker] = min(second, self._since[broker])
        self._ended()

    def passed(self, broker: str, fold: Fold, second: int) -> None:
        """``fold`` has taken in everything up to ``second``, in which something changed; maybe once more."""
        if (known := self._brokers.get(fold)) is None:
            if second < self._since.get(broker, second):
                return  # told of before
            known = self._brokers[fold] = _Broker(broker, fold, second, second)
        if known.correcting is not None and second < known.correcting:
            return
        if second < known.since:
            known.begin(second)
        if second < known.first:
            known.corrects = second if known.corrects is None else min(second, known.corrects)
        again = known.again(second)
        outcome = Outcome(broker, fold, second)
        least = int(self._alone and second == fold.now_second)  # its time is known by its rows
        tenant_happened, queue_happened = outcome.happened
        beside = {"as_of_us": np.int64(outcome.as_of_us), "second": np.int64(second), "happened": queue_happened}
        queues = _of(known.queues, outcome.places, outcome.queue_columns, beside, again.queues, least)
        beside |= outcome.columns_of_queues | {"happened": tenant_happened}
        tenants = _of(known.tenants, outcome.keys, outcome.tenant_columns, beside, again.tenants)
        known.told[second] = Told(tenants.numbers, queues.numbers)
        known.newest = second
        known.forget()
        known.rows.append(Second(second, tenants, queues))
        self._waiting += len(tenants.numbers) + len(queues.numbers)
        if self._waiting > MOST_WAITING:
            self._flush()
            if second < known.first or known.correcting is not None:  # what follows corrects later seconds
                known.corrects = second + 1

    def moved(self, folds: Mapping[str, Fold], meant: Mapping[tuple[str, str], set[str]]) -> list[tuple[str, str]]:
        """The (broker, queue) that ``folds``, which have begun anew, have other consumers of than was told.

        ``meant``: the consumers whose samples are the unnamed one's.
        """
        told, self._told_of = self._told_of, None
        return [] if told is None else list(told.moved(Consumers.of(folds.items()), meant))

    def correcting(self, broker: str, fold: Fold, second: int) -> None:
        """``fold``, of one queue alone, is about to fold its past anew: from ``second`` on it is told otherwise."""
        self._brokers[fold] = _Broker(broker, fold, fold.now_second, second, corrects=second, correcting=second)

    def corrected(self, broker: str, fold: Fold) -> None:
        """It has come to data time."""
        known = self._brokers[fold]
        for other in [each for each in self._brokers if each.only == fold.only and each is not fold]:
            if self._brokers[other].broker == broker:  # the queue was apart before
                del self._brokers[other]
        known.correcting, known.first = None, fold.now_second
        self._tell_all(known)  # the newest of a key's rows counts, and one that was wrong may be as new as can be

    def turned(self) -> None:
        """An epoch begins, at one second for all there is."""
        for known in self._brokers.values():
            known.first = known.fold.now_second
            if known.correcting is None:  # otherwise it is not there yet
                self._tell_all(known)

    def _tell_all(self, known: _Broker) -> None:
        now = Outcome(known.broker, known.fold)
        known.have_told(now.second, Told(now.keys, now.places))
        self.passed(known.broker, known.fold, now.second)

    def one_again(self) -> None:
        """Tell one row again, as it was."""
        for known in self._brokers.values():
            if known.correcting is None and not known.rows:
                self.passed(known.broker, known.fold, known.fold.now_second)
            if known.rows:
                return

    def whole(self, folds: Iterable[tuple[str, Fold]]) -> None:
        """Have rows of all there is, where nothing changed too; ``folds`` with their brokers."""
        for broker, fold in folds:
            if fold not in self._brokers:
                self.passed(broker, fold, fold.now_second)

    def take(self) -> Taken:
        """The rows since the last time."""
        taken = Taken([], [])
        for fold, known in self._brokers.items():
            if known.correcting is not None and self._waiting <= MOST_WAITING:
                continue  # at once, when it is done
            for name, into in taken._asdict().items():
                told: list[Rows] = [rows for each in known.rows if len((rows := getattr(each, name)).numbers)]
                if told:
                    numbers = np.concatenate([rows.numbers for rows in told])
                    columns = {name: np.concatenate([rows.columns[name] for rows in told]) for name in told[0].columns}
                    into.append(Part(known.broker, fold, numbers, columns, known.corrects))
            known.rows.clear()
            known.corrects = None
            known.taken = known.newest
        waiting = (each for known in self._brokers.values() for each in known.rows)
        self._waiting = sum(len(each.tenants.numbers) + len(each.queues.numbers) for each in waiting)
        return taken


def _of(
    differ: Differ, numbers: Array, columns: Columns, beside: Mapping[str, Any], again: Array, least: int = 0
) -> Rows:
    """The rows that ``happened`` or whose ``columns`` are not as they were, those of ``again``, and ``least`` rows in
    any case; what stands ``beside`` them makes no row different."""
    mask = differ.changed(numbers, columns) | beside["happened"]
    if len(again):
        mask |= np.isin(numbers, again)
    if not mask.any():
        mask[:least] = True
    told = columns | {name: np.broadcast_to(values, len(mask)) for name, values in beside.items()}
    return Rows(numbers[mask], {name: values[mask] for name, values in told.items()})
