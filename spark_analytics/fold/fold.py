"""One broker's past folded into its present, second by second, and how the newest seconds are taken back.

Rows come a little late and out of order, so the last seconds stay undoable: a row for a second that was passed takes
the state back to just before it, and the seconds since are added anew. What comes later than that is for the caller to
answer, by folding everything anew: the outcome depends on the set of rows alone, never on the order of their coming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lake.formula import compiled
from lake.noisy import SILENT
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.arrays import Array, Integers, distinct, null_where, summed
from spark_analytics.fold.cells import NONE
from spark_analytics.fold.intake import Intake, RebuildRequired
from spark_analytics.fold.lived import Consumers
from spark_analytics.fold.state import BACKLOG
from spark_analytics.fold.step import ENQUEUED, FINISHED, FLOWS, MEASURES, WINDOWED, Step, Undo, work_units

#: So many of the newest steps can be taken back in any case, and others of the last LONGEST seconds as long as all of
#: them together have no more than MOST_ROWS: the work that takes minutes is told once it has ended.
UNDOABLE = 60
LONGEST = 900
MOST_ROWS = 1_500_000
_OLDEST_AGE = compiled(FORMULAS["queue_oldest_age"])

BACKLOGGED = "backlogged"
#: Modes have numbers from 1 on, in this order, which is that of their names; an empty name is none.
MODES = ("", BACKLOGGED, "fast")


class Fold(Intake):
    """The state of one broker; ``window`` and ``target``, the age above which a queue is backlogged, in seconds."""

    def __init__(self, window: int, target: float, consumers: Consumers) -> None:
        super().__init__(consumers)
        self.window = window
        self._mode = compiled(FORMULAS["mode"].replace("$target", repr(float(target))))
        self.as_of_us = -1
        self._taken: dict[int, list[Array]] = {}
        self.done: deque[Step] = deque()
        self._out_of_window = 0  # how many of `done` have left the window
        self._settled = 0  # how many of `done` cannot be taken back any more
        self._undoable_rows = 0

    @property
    def now_second(self) -> int:
        """The second of data time."""
        return self.as_of_us // 1_000_000

    def reach(self, as_of_us: int) -> None:
        """Data time is ``as_of_us`` from now on."""
        if as_of_us < self.as_of_us:
            raise RebuildRequired("data time went back")
        if as_of_us > self.as_of_us:
            self._take_back(self.now_second)
            self.as_of_us = as_of_us
            ahead, self._ahead = self._ahead, []
            for samples in ahead:
                self.add_samples(samples)

    # -- forward ----------------------------------------------------------------------------------------------------

    def advance(self, until: int, passed: Callable[[int], None]) -> None:
        """Take in everything up to second ``until``; ``passed`` is called with each second that changed anything."""
        self.readings.grow(len(self.state.queues))
        due = {second for second in self._pending if second <= until} | {s for s in self._samples if s <= until}
        for second in sorted(due):
            self._advance(self._pending.pop(second) if second in self._pending else Step(second))
            self._trim()
            passed(second)
        if self.done and self.done[-1].second == self.now_second and self._tell_ahead(self.done[-1]):
            passed(self.now_second)

    def _advance(self, step: Step) -> None:
        second, state = step.second, self.state
        if self.done:
            self.done[-1].wide_bucket_chunks = []  # asked for at its own second alone, and many
        keys, counts, work, wide, told = step.merged()
        undo = step.undo = Undo()
        while self._out_of_window < len(self.done):
            oldest = self.done[self._out_of_window]
            if oldest.second > second - self.window:
                break
            self._out_of_window += 1
            undo.expired += 1
        self._window(step, 1)
        units = work_units(work)
        consumers = state.consumer_of[keys]
        before = state.tenants(keys)
        self._flow(step, 1)
        after = state.tenants(keys)
        state.add_to_queues(consumers, after - before)
        undo.last_arrival = state.last_arrival[keys]
        state.last_arrival[keys] = np.where(counts[:, ENQUEUED] > 0, second, undo.last_arrival)
        codes, nets = step.cells()
        state.cells.add(codes, nets)
        undo.oldest = state.oldest[keys]
        state.oldest[keys] = np.where(after[:, BACKLOG] > 0, state.cells.oldest(keys), NONE)
        own = np.where(wide, units, state.window_work[keys])
        whole = state.queue_work[consumers]
        if wide.any():
            whole = np.where(wide, state.work_of(consumers[wide], units[wide])[consumers], whole)
        verdicts, _ = state.judged(after, consumers, second, state.last_arrival[keys], own, whole)
        undo.verdicts = state.verdicts[keys]
        state.verdicts[keys] = np.where(verdicts != SILENT, verdicts, undo.verdicts)
        self._tell(step, consumers[told], undo)
        self.done.append(step)

    def _backlogs(self, consumers: Array, second: int) -> Array:
        return null_where(self.state.first_second[consumers] > second, self.state.queues[consumers, BACKLOG])

    def _flow(self, step: Step, sign: int) -> None:
        keys, counts, *_ = step.merged()
        totals = self.state.totals
        totals[keys, 0] += sign * (counts[:, ENQUEUED].astype(np.int64) - counts[:, FINISHED])
        for place, name in enumerate(FLOWS):
            totals[keys, place + 1] += sign * counts[:, MEASURES.index(name)]

    def _window(self, step: Step, sign: int) -> None:
        """Add the step to the sums over the window and take out of them what leaves as it comes, or the reverse.

        Rolled-up buckets have windows of their own.
        """
        changes = [(step, sign)]
        changes += (
            (self.done[gone], -sign) for gone in range(self._out_of_window - step.undo.expired, self._out_of_window)
        )
        codes, amounts = [], []
        for each, its_sign in changes:
            for lately in each.sampled:
                self.readings.add(lately, its_sign)
            keys, counts, work, wide, _ = each.merged()
            if wide.any():
                narrow = ~wide
                keys, counts, work = keys[narrow], counts[narrow], work[narrow]
            units = work_units(work) * its_sign
            self.state.window[keys] += its_sign * counts[:, : len(WINDOWED)].astype(np.int64)
            self.state.window_work[keys] += units
            self.state.queue_work += self.state.work_of(self.state.consumer_of[keys], units)
            codes.append(each.buckets()[0])
            amounts.append(its_sign * each.buckets()[1])
        self.state.buckets.add(*summed(np.concatenate(codes), np.concatenate(amounts)))

    def _tell(self, step: Step, consumers: Array, undo: Undo) -> None:
        """What the queues are like at the end of this second: modes of those that changed or were sampled."""
        samples = self._samples.pop(step.second, [])
        instants = distinct(consumers)
        if samples:
            self._read(step, np.concatenate(samples))
            self._taken[step.second] = samples
            instants = distinct(instants, *(each["consumer"] for each in samples))
        if step.second == self.now_second:
            self._tell_ahead(step)
        as_of_us = min((step.second + 1) * 1_000_000, self.as_of_us)
        step.instants, state = instants, self.state
        modes = self.modes_of(self.queue_columns(instants, step.second, as_of_us, state.oldest_of_queues()))
        undo.modes = state.turn(instants, modes, as_of_us)

    def in_window(self, second: int) -> Iterator[Step]:
        """The steps that the window holds which ends with ``second``, the last one that was taken in."""
        return (step for step in self.done if step.second > second - self.window)

    def _read(self, step: Step, samples: Array) -> None:
        """Take in samples that tell about ``step``."""
        read, lately, before = self.readings.put(samples)
        step.undo.readings.append(before)
        narrow = step.second > self.minutes_until
        (step.sampled if narrow else step.wide_sampled).append(lately)
        if narrow:
            self.readings.add(lately, 1)
        self.readings.backlog[read] = self._backlogs(read, step.second)

    def _tell_ahead(self, step: Step) -> bool:
        """Samples that are newer than the newest event tell about data time: whether any came since the last look."""
        new = self._ahead[self._ahead_told :]
        if not new:
            return False
        self.readings.grow(len(self.state.queues))
        self._read(step, np.concatenate(new))
        self._ahead_taken_in()
        return True

    def queue_columns(self, consumers: Array, second: int, as_of_us: int, oldest: Integers) -> dict[str, Any]:
        """What the formulas for a queue's age and mode ask for, with ``oldest_age_seconds``."""
        told = self.readings.newest[consumers]
        known = told["sampled_us"] > 0
        columns: dict[str, Any] = {
            "has_events": self.state.first_second[consumers] <= second,
            "backlog": self.state.queues[consumers, BACKLOG],
            "oldest_second": null_where(oldest[consumers] == NONE, oldest[consumers]),
            "as_of_us": as_of_us,
            "there": told["there"],
            "told_age_seconds": told["oldest_age_seconds"],
            "dead_letters": told["dead_letter_for"] > 0,
            "sampled_us": null_where(~known, told["sampled_us"]),
        }
        columns["oldest_age_seconds"] = np.asarray(_OLDEST_AGE(columns), np.float64)
        return columns

    def modes_of(self, columns: dict[str, Any]) -> Array:
        """The modes, as numbers, of queues of which :meth:`queue_columns` are these."""
        numbers: Array = np.searchsorted(MODES, np.asarray(self._mode(columns))).astype(np.int8) + 1
        return numbers

    # -- back -------------------------------------------------------------------------------------------------------

    def _take_back(self, second: int) -> None:
        """Undo every step from ``second`` on."""
        self.readings.grow(len(self.state.queues))
        while self.done and self.done[-1].second >= second:
            self._undoable_rows -= len(self.done[-1].merged()[0])
            self._undo(self.done.pop())

    def _undo(self, step: Step) -> None:
        if self._forgot_ahead:
            raise RebuildRequired("events go on after more samples than are kept")
        undo, state = step.undo, self.state
        keys, _, _, _, _ = step.merged()
        state.turn_back(step.instants, undo.modes)
        for before in reversed(undo.readings):
            self.readings.restore(before)
        self._ahead_told = 0
        if step.second in self._taken:
            self._samples[step.second] = self._taken.pop(step.second)
        state.verdicts[keys] = undo.verdicts
        state.oldest[keys] = undo.oldest
        codes, nets = step.cells()
        state.cells.add(codes, -nets)
        state.last_arrival[keys] = undo.last_arrival
        self._window(step, -1)
        after = state.tenants(keys)
        self._flow(step, -1)
        state.add_to_queues(state.consumer_of[keys], state.tenants(keys) - after)
        self._out_of_window -= undo.expired
        step.undo, step.sampled, step.wide_sampled = None, [], []
        if len(keys):
            self._pending[step.second] = step

    def _trim(self) -> None:
        """Let go of what need not be undone any more, and of steps out of every window."""
        newest = self.done[-1]
        self._undoable_rows += len(newest.merged()[0])
        while len(self.done) - self._settled > UNDOABLE and (
            self._undoable_rows > MOST_ROWS or self.done[self._settled].second < newest.second - LONGEST
        ):
            self._settle_one()
        if self._settled == 0:
            return
        # The first step that can be taken back puts back what left the window between the one before it and itself.
        first_kept = self.done[self._settled - 1].second - self.window
        while min(self._out_of_window, self._settled) and self.done[0].second <= first_kept:
            self.done.popleft()
            self._out_of_window -= 1
            self._settled -= 1

    def _settle_one(self) -> None:
        """Take the oldest step back no more."""
        step = self.done[self._settled]
        self._undoable_rows -= len(step.merged()[0])
        step.settle()
        self._settled += 1
        self.floor = max(self.floor, step.second)
        self._taken.pop(step.second, None)
