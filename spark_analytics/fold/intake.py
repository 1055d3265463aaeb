"""What comes in for one broker, put where it belongs: rows, pauses and samples → steps that are yet to be taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from lake.formula import compiled
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.arrays import Array, Integers, distinct, run_starts, summed
from spark_analytics.fold.cells import NONE, bucket_codes, code_of
from spark_analytics.fold.lived import Consumers, Lived, Name, first_seconds
from spark_analytics.fold.reading import Readings
from spark_analytics.fold.state import State
from spark_analytics.fold.step import BUSY, DELAYED, ENQUEUED, MEASURES, Step

_OPENING = compiled(FORMULAS["opening"])

MINUTE, HOUR = 60, 3600
#: How many samples are kept that are newer than the newest event: of queues at rest they come for days. When events go
#: on after more than that, the past is folded anew.
MOST_AHEAD = 200_000


class RebuildRequired(Exception):
    """What came cannot be put on top of what was folded: all of the past has to be folded anew. Says why."""


class Intake(ABC):
    """The steps of one broker that are not taken yet, by second, and who its consumers are.

    What comes for a second that cannot be taken back any more raises RebuildRequired or, where the fold is ``patient``,
    is told of the first second that can be: the levels are right at once, while judgements over the time between (who
    was noisy, since when a queue is in its mode) and history wait for the queue's past to be folded anew. ``late`` has
    the queues of which that is so, each with the first second that cannot be taken back of which something was told.

    A fold of ``only`` some queues, or one that has ``left_out`` some, is asked for rows of its own alone.
    """

    def __init__(self, consumers: Consumers) -> None:
        self.consumers = consumers
        self.state = State()
        self.minutes_until = self.hours_until = -1
        self.floor = -NONE  # no row may come for this second or before
        self.opened_until = -1  # an opening balance tells how things stood at the end of this second
        self.patient = False
        self.late: dict[str, int] = {}
        self.only: frozenset[str] | None = None
        self.left_out: set[str] = set()
        self._pending: dict[int, Step] = {}
        self.readings = Readings()
        self._samples: dict[int, list[Array]] = {}
        self._ahead: list[Array] = []  # samples that are newer than data time
        self._ahead_told = 0  # how many of them the step at data time has taken in
        self._forgot_ahead = False
        self._others: dict[Name, tuple[int, ...]] = {}

    @abstractmethod
    def _take_back(self, second: int) -> None:
        """Undo every step from ``second`` on: something came for it."""

    @property
    @abstractmethod
    def now_second(self) -> int:
        """The second of data time."""

    def add(self, lived: Lived) -> None:
        """Rows of partials. Raises RebuildRequired; the fold is then of no use any more."""
        names, places = lived.names, lived.places
        consumes = np.bincount(places.of_row, weights=lived.consumes, minlength=len(places.distinct)) > 0
        changed = [
            self.consumers.note(queue, subscriber, bool(consuming))
            for (queue, subscriber), consuming in zip(places.distinct, consumes, strict=True)
        ]
        if any(changed):
            raise RebuildRequired("a queue turned out to have other consumers")
        own = self._own_keys(lived)[names.of_row]
        self._put(lived, own, arrivals_alone=False)
        shared = {queue for queue, subscriber in places.distinct if not subscriber and self.consumers.of(queue) - {""}}
        if not shared:
            return
        arriving = lived.counts[:, ENQUEUED] > 0
        arrive = np.bincount(names.of_row, weights=arriving, minlength=len(names.distinct)) > 0
        others = [
            self._other_keys(name) if arrives and not name[1] and name[0] in shared else ()
            for name, arrives in zip(names.distinct, arrive, strict=True)
        ]
        for place in range(max(map(len, others), default=0)):
            keys = np.array([each[place] if place < len(each) else -1 for each in others], np.int64)[names.of_row]
            self._put(lived, np.where(arriving, keys, -1), arrivals_alone=True)

    def _own_keys(self, lived: Lived) -> Integers:
        """The key of each of ``lived.names``; −1 where nobody of that name consumes."""
        names, places = lived.names, lived.places
        lives = np.array([subscriber in self.consumers.of(queue) for queue, subscriber in places.distinct], bool)
        place = places.of_row[names.row_of]
        living = np.flatnonzero(lives[place])
        keys = np.full(len(names), -1, np.int64)
        numbers = self.state.keys(places.distinct, place[living], names.column(2).take(pa.array(living)))
        keys[living] = numbers
        return keys

    def _other_keys(self, name: Name) -> tuple[int, ...]:
        if (keys := self._others.get(name)) is None:
            named = sorted(self.consumers.of(name[0]) - {""})
            keys = self._others[name] = tuple(self.state.key((name[0], subscriber, name[2])) for subscriber in named)
        return keys

    def _put(self, lived: Lived, key: Integers, *, arrivals_alone: bool) -> None:
        """The rows that have a key; of those that are not the consumer's own their ``arrivals_alone``."""
        rows = np.flatnonzero(key >= 0)
        if len(rows) == 0:
            return
        self.state.told[key[rows]] = True
        seconds = lived.second[rows]
        starts = first_seconds(seconds, lived.width[rows])
        np.minimum.at(self.state.first_second, self.state.consumer_of[key[rows]], starts)
        counts, work = lived.counts[rows], lived.work[rows]
        if arrivals_alone:
            arrivals = np.zeros_like(counts)
            arrivals[:, ENQUEUED] = counts[:, ENQUEUED]
            counts, work = arrivals, np.zeros(len(rows))
        wide = lived.width[rows] > 1
        opening = np.broadcast_to(_OPENING({"bucket_seconds": lived.width[rows]}), len(rows))
        self.opened_until = max(self.opened_until, int(seconds[opening].max(initial=-1)))
        cells = np.flatnonzero((key[lived.cell_row] >= 0) & ((not arrivals_alone) | (lived.cell_net > 0)))
        cell_row = lived.cell_row[cells]
        codes = code_of(key[cell_row], lived.cell_second[cells])
        order = np.argsort(seconds, kind="stable")
        bounds = _bounds(seconds[order])
        cell_order = np.argsort(lived.second[cell_row], kind="stable")
        cell_second = lived.second[cell_row][cell_order]
        for begin, end in bounds:
            at = order[begin:end]
            second = int(seconds[at[0]])
            step = self._step(second, key[rows[at]])
            step.add(key[rows[at]].astype(np.int32), counts[at], work[at], wide[at], np.ones(len(at), bool))
            low, high = np.searchsorted(cell_second, [second, second + 1])
            of_step = cell_order[low:high]
            if len(of_step):
                step.cell_chunks.append(summed(codes[of_step], lived.cell_net[cells[of_step]]))
        if not arrivals_alone:
            self._put_processing(lived, key)

    def _put_processing(self, lived: Lived, key: Integers) -> None:
        row = lived.processing_row
        for wide in (False, True):
            kept = np.flatnonzero((key[row] >= 0) & ((lived.width[row] > 1) == wide))
            order = kept[np.argsort(lived.second[row[kept]], kind="stable")]
            for begin, end in _bounds(lived.second[row[order]]):
                at = order[begin:end]
                codes = bucket_codes(key[row[at]], lived.processing_bucket[at])
                step = self._step(int(lived.second[row[at[0]]]), key[row[at]])
                chunks = step.wide_bucket_chunks if wide else step.bucket_chunks
                chunks.append(summed(codes, lived.processing_count[at]))

    def add_pauses(self, edges: Mapping[tuple[int, Name], tuple[int, int]]) -> None:
        """By second and key: how many more of its messages wait for a retry, and are delayed, from then on."""
        by_second: dict[int, list[tuple[int, int, int]]] = {}
        for (second, name), (waiting, delayed) in edges.items():
            if waiting or delayed:
                second = self.level_second(second)
                by_second.setdefault(second, []).append((self.state.key(name), waiting, delayed))
        for second, changes in by_second.items():
            counts = np.zeros((len(changes), len(MEASURES)), np.int32)
            counts[:, BUSY] = [-waiting for _, waiting, _ in changes]
            counts[:, DELAYED] = [delayed for _, _, delayed in changes]
            keys = np.array([key for key, _, _ in changes], np.int32)
            no = np.zeros(len(changes), bool)
            order = np.argsort(keys, kind="stable")
            self._step(second, keys).add(keys[order], counts[order], np.zeros(len(changes)), no, no)

    def width(self, second: int) -> int:
        """The length of the bucket that holds ``second``."""
        return HOUR if second <= self.hours_until else MINUTE if second <= self.minutes_until else 1

    def level_second(self, second: int) -> int:
        """The last second of the bucket that holds ``second``, where partials were rolled up."""
        width = self.width(second)
        return second // width * width + width - 1

    def add_samples(self, samples: Array) -> None:
        """SAMPLEs, whenever they were taken. Raises RebuildRequired."""
        is_ahead = samples["sampled_us"] // 1_000_000 > self.now_second
        if is_ahead.any():
            ahead = samples[is_ahead]
            if self.readings.overtaken(ahead):
                self._take_back(self.now_second)
            self._ahead.append(ahead)
            samples = samples[~is_ahead]
        if len(samples) == 0:
            return
        seconds = samples["sampled_us"] // 1_000_000
        for until, length in ((self.minutes_until, MINUTE), (self.hours_until, HOUR)):
            seconds = np.where(seconds <= until, seconds // length * length + length - 1, seconds)
        if int(seconds.min()) <= self.floor:
            late = seconds <= self.floor
            self._note_late(int(seconds.min()), samples["consumer"][late])
            for serves in distinct(samples["dead_letter_for"][late]).tolist():
                for queue in (self.readings.words.texts[serves] or "").split(","):
                    self._note(queue, int(seconds.min()))
            samples, seconds = samples[seconds > self.floor], seconds[seconds > self.floor]
            if len(samples) == 0:
                return
        self._take_back(int(seconds.min()))
        order = np.argsort(seconds, kind="stable")
        for begin, end in _bounds(seconds[order]):
            at = order[begin:end]
            self._samples.setdefault(int(seconds[at[0]]), []).append(samples[at])

    def _ahead_taken_in(self) -> None:
        while sum(map(len, self._ahead)) > MOST_AHEAD and len(self._ahead) > 1:
            self._ahead, self._forgot_ahead = self._ahead[len(self._ahead) // 2 :], True
        self._ahead_told = len(self._ahead)

    @property
    def due(self) -> bool:
        """Whether there are steps that are not taken yet."""
        return bool(self._pending or self._samples)

    def expect(self, second: int) -> None:
        """Take a step in ``second``, after all those taken, even if nothing comes for it: windows end there, too."""
        self._pending.setdefault(second, Step(second))

    def _note_late(self, second: int, consumers: Array) -> None:
        if not self.patient:
            raise RebuildRequired("something came for a second that cannot be taken back any more")
        for consumer in distinct(consumers).tolist():
            self._note(self.state.consumers[consumer][0], second)

    def _note(self, queue: str, second: int) -> None:
        if queue and self.is_own(queue):
            self.late[queue] = min(second, self.late.get(queue, second))

    def is_own(self, queue: str) -> bool:
        """Whether rows about ``queue`` are to be told by this fold."""
        return queue not in self.left_out and (self.only is None or queue in self.only)

    def own(self) -> Array:
        """Of each consumer whether rows about it are to be told by this fold."""
        consumers = self.state.consumers
        if self.only is None and not self.left_out:
            return np.ones(len(consumers), bool)
        return np.array([self.is_own(queue) for queue, _ in consumers], bool)

    def _step(self, second: int, keys: Array) -> Step:
        if second <= self.floor:
            self._note_late(second, self.state.consumer_of[keys])
            second = self.floor + 1
        self._take_back(second)
        if (step := self._pending.get(second)) is None:
            step = self._pending[second] = Step(second)
        return step


def _bounds(ordered: Array) -> Iterable[tuple[int, int]]:
    """Where runs of equal values begin and end."""
    if len(ordered) == 0:
        return []
    starts = run_starts(ordered)
    return zip(starts.tolist(), [*starts[1:].tolist(), len(ordered)], strict=True)
