"""The lake's levels as they are now, kept in memory: the folds of each broker, fed commit by commit."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lake.definitions import Definitions
from lake.snapshot import FileGone
from spark_analytics.fold.broker import Broker
from spark_analytics.fold.fold import Fold
from spark_analytics.fold.intake import RebuildRequired
from spark_analytics.fold.lived import Consumers, by_broker, levels_of, raise_levels
from spark_analytics.fold.past import Clocks, fold_past
from spark_analytics.fold.samples import Samples, read_samples
from spark_analytics.fold.survey import FED, oldest, reached_by, surveyed
from spark_analytics.fold.totals import Totals
from spark_analytics.state.feed import Came, Feed
from spark_analytics.state.seconds import Seconds

log = logging.getLogger(__name__)


class Present:
    """Folds of what ``feed`` reads under ``definitions``; ``seconds`` is shown each one that changed anything.

    Belongs to one thread.
    """

    def __init__(self, feed: Feed, definitions: Definitions, seconds: Seconds) -> None:
        self._feed, self._definitions, self._seconds = feed, definitions, seconds
        self.samples = Samples()
        self.forget()

    def forget(self) -> None:
        """Let go of all that was taken in; the next :meth:`refresh` begins anew."""
        self.brokers: dict[str, Broker] = {}
        self._levels: dict[str, tuple[int, int]] = {}  # by broker until when partials are told by the minute, and hour
        self._begun = False
        self._totals = Totals()
        self.samples.forget()

    @property
    def begun(self) -> bool:
        """Whether there is anything that what comes can be put on top of."""
        return self._begun

    @property
    def folds(self) -> list[tuple[str, Fold]]:
        """All folds, with their brokers."""
        return [(name, fold) for name, broker in self.brokers.items() for fold in broker.folds]

    @property
    def wholes(self) -> dict[str, Fold]:
        """By broker the fold of all queues but those that have one of their own."""
        return {name: broker.whole.fold for name, broker in self.brokers.items()}

    @property
    def apart(self) -> int:
        """How many queues have a fold of their own."""
        return sum(len(broker.apart) for broker in self.brokers.values())

    @property
    def correcting(self) -> frozenset[tuple[str, str]]:
        """The (broker, queue) that are being corrected."""
        return frozenset((name, queue) for name, broker in self.brokers.items() for queue in broker.corrections)

    @property
    def late(self) -> dict[tuple[str, str], int]:
        """By (broker, queue) the first second of which something came too late to be told where it belongs."""
        return {(name, queue): at for name, broker in self.brokers.items() for queue, at in broker.late.items()}

    @property
    def clocks(self) -> dict[str, Clocks]:
        """By broker when its newest event and its newest sample were."""
        newest = self.samples.newest_us
        return {
            name: Clocks(fold.as_of_us if fold.state.names else None, newest.get(name))
            for name, fold in self.wholes.items()
        }

    def distrust(self, broker: str, queue: str) -> None:
        """All that was told of ``queue`` is wrong: it counts as late from its first second on."""
        fold = self.brokers[broker].whole.fold
        named = zip(fold.state.consumers, fold.state.first_seconds().tolist(), strict=True)
        firsts = [first for (name, _), first in named if name == queue]
        if (sampled := self.samples.first_us.get((broker, queue))) is not None:
            firsts.append(sampled // 1_000_000)
        fold.late[queue] = min(firsts)

    def refresh(self, came: Came, *, patient: bool = False) -> bool:
        """Take in what ``came``; whether there was anything. Raises LakeError.

        ``patient``: what is late by more than can be taken back does not make the past be folded anew at once.
        """
        if self._begun and not came and (patient or not self.late):
            return False
        for _, fold in self.folds:
            fold.patient = patient
        try:
            if not self._begun:
                raise RebuildRequired("nothing was folded yet")
            if self.late and not patient:
                raise RebuildRequired("what came late is about many queues")
            if came.rebuild or came.much:
                raise RebuildRequired(came.rebuild or "more came than is held at once")
            self._take_in(came)
        except RebuildRequired as reason:
            self._fold_anew(reason, came)
        except BaseException:
            self.forget()
            raise
        return True

    def _take_in(self, came: Came) -> None:
        for change in came.changes["partials"]:
            if change.same_rows:
                self._totals.arranged(change)
            elif change.replaces:
                if not self._totals.replaced(change, came.rows):
                    raise RebuildRequired("files of partials were replaced by others that tell otherwise")
                for path in change.added:
                    raise_levels(self._levels, levels_of(came.rows[path]))
            else:
                for path in change.added:
                    self._totals.put(path, came.rows[path])
        partials, samples = (list(came.of(name)) for name in ("partials", "queue_samples"))
        for name, as_of_us in reached_by(partials, samples, self.wholes).items():
            if name not in self.brokers:
                raise RebuildRequired("a broker came that nothing was known of")
            for fold in self.brokers[name].folds:
                fold.reach(as_of_us)
        if any((pc.max(rows.column("bucket_seconds")).as_py() or 0) > 1 for rows in partials):
            raise RebuildRequired("minutes or hours came that nobody has told by the second")
        for table in FED:
            for rows in came.of(table):
                self._add(table, rows)
        if self.samples.doubtful(self._consumers):
            raise RebuildRequired("samples are those of other consumers than they were taken to be")
        for broker in self.brokers.values():
            broker.advance(self._advance)

    def _add(self, table: str, rows: pa.Table) -> None:
        if table == "queue_samples" and self.samples.changed(rows, self._consumers):
            raise RebuildRequired("samples are those of other consumers than they were taken to be")
        for name, mine in by_broker(rows):
            if name in self.brokers:  # marks may come before the first partials of a broker
                self.brokers[name].add(table, mine)

    @property
    def _consumers(self) -> dict[str, Consumers]:
        return {name: fold.consumers for name, fold in self.wholes.items()}

    def correct(self, name: str, queue: str, second: int, enough: Callable[[], bool] = lambda: False) -> bool:
        """Fold ``queue`` anew from its own rows, as of the last :meth:`refresh`, and apart from the others from now on:
        from ``second`` on it is told otherwise.

        Once it is ``enough`` for now, the rest is left for the next time; whether it was finished. Raises LakeError.
        """
        broker = self.brokers[name]
        try:
            if (correction := broker.corrections.get(queue)) is None:
                whole = broker.whole.fold
                fold = Fold(whole.window, self._definitions.target_seconds, whole.consumers)
                fold.minutes_until, fold.hours_until = self._levels.get(name, (-1, -1))
                correction = broker.begin_correction(queue, fold, self._feed.files(), self._advance)
                self._seconds.correcting(name, fold, second)
            for _ in correction.work:
                if enough():
                    return False
            self._seconds.corrected(name, broker.end_correction(queue, self._advance).fold)
        except RebuildRequired as reason:
            self._fold_anew(reason, Came())
        except BaseException:
            self.forget()
            raise
        return True

    def _advance(self, broker: str, fold: Fold, until: int) -> None:
        fold.advance(until, lambda second: self._seconds.passed(broker, fold, second))

    def _fold_anew(self, reason: Exception, came: Came) -> None:
        """Fold all there is, for a ``reason``."""
        try:
            self._seconds.anew(_oldest(came))
            self.forget()
            files = self._feed.files()
            samples = [read_samples(path) for path in files["queue_samples"]]
            folds = surveyed(files["partials"], samples, self._definitions)
            self._levels = {name: (fold.minutes_until, fold.hours_until) for name, fold in folds.items()}
            self.brokers = {name: Broker(name, fold, self.samples) for name, fold in folds.items()}
            for rows in samples:
                self.samples.note(rows)
            for rows in samples:
                self._add("queue_samples", rows)
            parts = {name: broker.whole for name, broker in self.brokers.items()}
            for _ in fold_past(files, parts, self._advance, seen=self._totals.put):
                pass
            for part in parts.values():
                part.pauses.forget(part.fold.now_second)
        except BaseException:
            self.forget()
            raise
        self._begun = True
        pa.default_memory_pool().release_unused()
        log.info("folded %d files of partials anew: %s", len(files["partials"]), reason)


def _oldest(came: Came) -> dict[str, int] | None:
    """By broker the first second of which something ``came``; None: unknown."""
    if came.rebuild:
        return None
    try:
        return oldest({name: came.of(name) for name in FED})
    except FileGone:
        return None
