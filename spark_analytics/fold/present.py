"""The lake's present, kept in memory by a long-lived reader: one fold for each broker, fed commit by commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lake.definitions import Definitions
from lake.follow import Change, Follower
from lake.remote import Location
from lake.snapshot import FileGone, Snapshot, read_file
from lake.tables import TABLES
from spark_analytics.fold import lived
from spark_analytics.fold.apart import Apart, Aparts, step_now
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.intake import RebuildRequired
from spark_analytics.fold.lived import by_broker
from spark_analytics.fold.mending import Mending, folding
from spark_analytics.fold.past import fold_past
from spark_analytics.fold.pauses import COLUMNS as MARK_COLUMNS
from spark_analytics.fold.pauses import Mark, Pauses, marks_of
from spark_analytics.fold.samples import Samples
from spark_analytics.fold.survey import oldest, reached_by, surveyed
from spark_analytics.fold.totals import Totals

log = logging.getLogger(__name__)

FED = ("partials", "marks", "queue_samples")  # in this order: a batch's marks are committed before its partials


class Watcher(Protocol):
    """Is shown what the folds pass through."""

    def anew(self, oldest: dict[str, int]) -> None:
        """All of history is about to be folded again, by other folds.

        ``oldest``: by broker the first second of which something has come that was not folded before.
        """

    def passed(self, broker: str, fold: Fold, second: int) -> None:
        """``fold`` has taken in everything up to ``second``, in which something changed; maybe once more."""

    def correcting(self, broker: str, fold: Fold, second: int) -> None:
        """``fold``, of one queue alone, is about to fold its past anew: from ``second`` on it is told otherwise."""

    def corrected(self, broker: str, fold: Fold) -> None:
        """It has come to data time."""


class Clocks(NamedTuple):
    """When the newest event of a broker was, and its newest sample, in µs of unix time; None: there is none."""

    event_us: int | None
    sample_us: int | None


class Present:
    """Folds of the lake at ``root``; :meth:`refresh` brings them to the newest commits. Belongs to one thread.

    ``seen``: the versions of the tables that somebody folded before, as :attr:`seen` told. ``also``: columns of them
    that the caller needs of what comes, which it finds in :attr:`came`.
    """

    def __init__(
        self,
        root: Path,
        definitions: Definitions,
        seen: Mapping[str, int] | None = None,
        also: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._definitions = definitions
        self._columns = {
            name: tuple(dict.fromkeys((*columns, *(also or {}).get(name, ()))))
            for name, columns in (("partials", lived.COLUMNS), ("marks", MARK_COLUMNS))
        }
        #: The files of these tables that the last :meth:`refresh` read as they came, with those columns.
        self.came: dict[Location, pa.Table] = {}
        self._followers = {name: Follower(Snapshot(TABLES[name], root)) for name in FED}
        self.samples = Samples()
        self._watcher: Watcher | None = None
        self.forget()
        for name in seen or {}:
            self._followers[name] = Follower(Snapshot(TABLES[name], root), (seen or {})[name])

    def forget(self) -> None:
        """Let go of all that was taken in; the next :meth:`refresh` begins anew."""
        self.folds: dict[str, Fold] = {}
        self._levels: dict[str, tuple[int, int]] = {}  # by broker until when partials are told by the minute, and hour
        self._begun = False
        self._pauses: dict[str, Pauses] = {}
        self.apart = Aparts()
        self._mending: dict[tuple[str, str], Mending] = {}
        self.totals = Totals()
        self.samples.forget()
        for follower in self._followers.values():
            follower.forget()

    @property
    def seen(self) -> dict[str, int]:
        """The versions of the tables that the folds have come to."""
        versions = ((name, follower.version) for name, follower in self._followers.items())
        return {name: version for name, version in versions if version is not None and version >= 0}

    @property
    def mending(self) -> frozenset[tuple[str, str]]:
        """The (broker, queue) that are being corrected."""
        return frozenset(self._mending)

    @property
    def late(self) -> dict[tuple[str, str], int]:
        """By (broker, queue) the first second of which something came too late to be told where it belongs."""
        folds = [*self.folds.items(), *self.apart.folds()]
        return {(broker, queue): second for broker, fold in folds for queue, second in fold.late.items()}

    def distrust(self, broker: str, queue: str) -> None:
        """All that was told of ``queue`` is wrong: it counts as late from its first second on."""
        fold = self.folds[broker]
        named = zip(fold.state.consumers, fold.state.first_seconds().tolist(), strict=True)
        firsts = [first for (name, _), first in named if name == queue]
        if (sampled := self.samples.first_us.get((broker, queue))) is not None:
            firsts.append(sampled // 1_000_000)
        fold.late[queue] = min(firsts)

    def refresh(self, *, patient: bool = False, watcher: Watcher | None = None) -> bool:
        """Take in what was committed since; whether there was anything. Raises LakeError.

        ``patient``: what is late by more than can be taken back does not make the past be folded anew at once.
        ``watcher`` is shown each second that changed anything.
        """
        self._watcher = watcher
        self.came = {}
        changes = {name: follower.changes() for name, follower in self._followers.items()}
        if self._begun and not any(changes.values()) and (patient or not self.late):
            return False
        for fold in (*self.folds.values(), *(fold for _, fold in self.apart.folds())):
            fold.patient = patient
        try:
            if not self._begun:
                raise RebuildRequired("nothing was folded yet")
            if self.late and not patient:
                raise RebuildRequired("what came late is about many queues")
            if any(change.anew for each in changes.values() for change in each):
                raise RebuildRequired("a table's log no longer tells what changed")
            self._take_in(changes)
        except (RebuildRequired, FileGone) as reason:
            try:
                if watcher is not None:
                    watcher.anew(oldest(changes))
                self._fold_anew(reason)
            except BaseException:
                self.forget()
                raise
        except BaseException:
            self.forget()
            raise
        return True

    @property
    def clocks(self) -> dict[str, Clocks]:
        """By broker when its newest event and its newest sample were."""
        return {
            broker: Clocks(fold.as_of_us if fold.state.names else None, self.samples.newest_us.get(broker))
            for broker, fold in self.folds.items()
        }

    # -- commit by commit -------------------------------------------------------------------------------------------

    def _take_in(self, changes: dict[str, list[Change]]) -> None:
        came, samples = [], []
        for change in changes["partials"]:
            if change.same_rows:
                self.totals.arranged(change)
            elif change.removed:
                moved = self.totals.replaced(change)
                if moved is None:
                    raise RebuildRequired("files of partials were replaced by others that tell otherwise")
                for broker, levels in moved.items():
                    known = self._levels.get(broker, levels)
                    self._levels[broker] = max(known[0], levels[0]), max(known[1], levels[1])
            else:
                for path in change.added:
                    rows = self._read("partials", path)
                    self.totals.put(path, rows)
                    came.append(rows)
        for change in changes["queue_samples"]:
            samples += [] if change.same_rows or change.removed else [self.samples.read(path) for path in change.added]
        reached = reached_by(came, samples, self.folds)
        if any(broker not in self.folds for broker in reached):
            raise RebuildRequired("a broker came that nothing was known of")
        edges: list[tuple[str, list[Mark]]] = []
        for change in changes["marks"]:
            for path in [] if change.same_rows or change.removed else change.added:
                edges += marks_of(self._read("marks", path))
        for (broker, queue), mending in self._mending.items():
            mending.put(broker, queue, came, edges, samples)
        for broker, as_of_us in reached.items():
            self.folds[broker].reach(as_of_us)
            self.apart.reach(broker, as_of_us)
        for rows in came:
            for broker, mine in by_broker(rows):
                if pc.max(mine.column("bucket_seconds")).as_py() > 1:
                    raise RebuildRequired("minutes or hours came that nobody has told by the second")
                for fold, its in self.apart.rows(broker, self.folds[broker], mine):
                    fold.add(lived.read(its))
        for broker, marks in edges:
            if broker not in self.folds:
                raise RebuildRequired("a broker came that nothing was known of")
            whole = Apart(self.folds[broker], self._pauses[broker])
            for part, its_marks in self.apart.marks(broker, whole, marks):
                part.fold.add_pauses(part.pauses.add(its_marks))
        for rows in samples:
            self._add_samples(rows)
        if self.samples.doubtful({broker: fold.consumers for broker, fold in self.folds.items()}):
            raise RebuildRequired("samples are those of other consumers than they were taken to be")
        for broker, fold in self.folds.items():
            self.apart.step_now(broker, fold)
            self._advance(broker, fold, fold.now_second)
            self._pauses[broker].forget(fold.now_second)
            for part in self.apart.of(broker).values():
                self._advance(broker, part.fold, fold.now_second)
                part.pauses.forget(fold.now_second)

    def _read(self, name: str, path: Location) -> pa.Table:
        """What a file of table ``name`` that has come holds."""
        rows = self.came[path] = read_file(path, self._columns[name])
        return rows

    def _add_samples(self, rows: pa.Table) -> None:
        if self.samples.changed(rows, {broker: fold.consumers for broker, fold in self.folds.items()}):
            raise RebuildRequired("samples are those of other consumers than they were taken to be")
        for broker, samples in self.samples.of_brokers(rows, self.folds):
            self.folds[broker].add_samples(samples)
        for broker, fold, its in self.apart.samples(rows):
            for _, samples in self.samples.of_brokers(its, {broker: fold}):
                fold.add_samples(samples)

    # -- a queue apart ----------------------------------------------------------------------------------------------

    def correct(
        self, broker: str, queue: str, second: int, watcher: Watcher, enough: Callable[[], bool] = lambda: False
    ) -> bool:
        """Fold ``queue`` anew from its own rows, as of the last :meth:`refresh`, and apart from the others from now on.

        ``watcher`` is shown what it passes from ``second`` on. Once it is ``enough`` for now, the rest is left for the
        next time; whether it was finished. Raises LakeError.
        """
        self._watcher = watcher
        try:
            mending = self._mending.get((broker, queue)) or self._begin_apart(broker, queue, second)
            mending.read_on()
            while not mending.read:
                if enough():
                    return False
                mending.read_on()
            self._end_apart(broker, queue, mending)
        except RebuildRequired as reason:
            watcher.anew({})
            self._fold_anew(reason)
        except BaseException:
            self.forget()
            raise
        return True

    def _begin_apart(self, broker: str, queue: str, second: int) -> Mending:
        whole = self.folds[broker]
        part = Apart.of(whole, queue, Fold(whole.window, self._definitions.target_seconds, whole.consumers))
        part.fold.minutes_until, part.fold.hours_until = self._levels.get(broker, (-1, -1))
        if self._watcher is not None:
            self._watcher.correcting(broker, part.fold, second)
        files = {name: follower.files() for name, follower in self._followers.items()}
        advance = partial(self._advance, broker, part.fold)
        work = folding(broker, queue, part, files, self.samples, advance)
        self._mending[broker, queue] = Mending(part, work)
        return self._mending[broker, queue]

    def _end_apart(self, broker: str, queue: str, mending: Mending) -> None:
        """Take in what came meanwhile."""
        whole, fold = self.folds[broker], mending.part.fold
        del self._mending[broker, queue]
        fold.patient = True
        fold.reach(whole.as_of_us)
        for rows in mending.rows:
            fold.add(lived.read(rows))
        fold.add_pauses(mending.part.pauses.add(mending.marks))
        for rows in mending.samples:
            for _, samples in self.samples.of_brokers(rows, {broker: fold}):
                fold.add_samples(samples)
        step_now(fold)
        self._advance(broker, fold, fold.now_second)
        self._pauses[broker].leave(queue)
        self.apart.put(broker, queue, mending.part, whole)
        if self._watcher is not None:
            self._watcher.corrected(broker, fold)

    # -- from the start ---------------------------------------------------------------------------------------------

    def _advance(self, broker: str, fold: Fold, until: int) -> None:
        watcher = self._watcher
        fold.advance(until, None if watcher is None else lambda second: watcher.passed(broker, fold, second))

    def _fold_anew(self, reason: Exception) -> None:
        """Fold all there is, for a ``reason``."""
        self.forget()
        changes = {name: follower.changes() for name, follower in self._followers.items()}
        files = {name: [path for change in each for path in change.added] for name, each in changes.items()}
        samples = [self.samples.read(path) for path in files["queue_samples"]]
        self.folds = surveyed(files["partials"], samples, self._definitions)
        self._levels = {broker: (fold.minutes_until, fold.hours_until) for broker, fold in self.folds.items()}
        self._pauses = {broker: Pauses() for broker in self.folds}
        for rows in samples:
            self.samples.note(rows)
        for rows in samples:
            self._add_samples(rows)
        fold_past(files["marks"], files["partials"], self.folds, self._pauses, self._advance, seen=self.totals.put)
        for broker, fold in self.folds.items():
            self._pauses[broker].forget(fold.now_second)
        self._begun = True
        pa.default_memory_pool().release_unused()
        log.info("folded %d files of partials anew: %s", len(files["partials"]), reason)
