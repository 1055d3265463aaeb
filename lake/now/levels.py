"""What judgements with memory came to, stretch of time by stretch, so that they can be put together anew.

Whether a tenant is noisy, and since when a queue is in its mode, depends on every instant of the past; and once seconds
are rolled up, the past has fewer instants: the ends of minutes, then of hours. So the outcome of each minute is kept in
the ways in which the views may come to see it, and history becoming coarser costs no second look at the rows:

* `fine`: judged second by second;
* `first`: the same with windows that reach back to the minute's start alone, as where it is the first that is told by
  the second (a window does not add seconds to minutes);
* `coarse`: judged once, at its end, over the whole of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Verdicts on a tenant: the last of its instants that said anything said …
SILENT, NOISY, QUIET = 0, 1, -1
NO_MODE = 0


def padded(array: Array, size: int) -> Array:
    """``array`` with zeros up to ``size``."""
    if len(array) >= size:
        return array
    grown = np.zeros((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


@dataclass(slots=True)
class Runs:
    """Of each consumer: its first and last mode in a stretch (0: it had no instant), and when the last run began.

    ``since`` is 0 where the mode did not turn within the stretch: the run began at ``began``, or before the stretch.
    """

    first: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    last: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    began: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    since: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def record(self, consumers: Array, modes: Array, as_of_us: int) -> tuple[Array, ...]:
        """The consumers' modes at one instant; what was there before, for :meth:`restore`."""
        before = tuple(array[consumers] for array in (self.first, self.last, self.began, self.since))
        new = before[0] == NO_MODE
        turned = ~new & (before[1] != modes)
        self.first[consumers] = np.where(new, modes, before[0])
        self.began[consumers] = np.where(new, as_of_us, before[2])
        self.since[consumers] = np.where(turned, as_of_us, before[3])
        self.last[consumers] = modes
        return before

    def restore(self, consumers: Array, before: tuple[Array, ...]) -> None:
        """Undo :meth:`record`."""
        for array, values in zip((self.first, self.last, self.began, self.since), before, strict=True):
            array[consumers] = values

    def then(self, later: Runs) -> Runs:
        """The runs of this stretch and the ``later`` one together."""
        size = max(len(self.first), len(later.first))
        self.grow(size)
        later.grow(size)
        none, nothing = later.first == NO_MODE, self.first == NO_MODE
        goes_on = ~nothing & (self.last == later.first)
        joined = np.where(
            later.since > 0, later.since, np.where(goes_on, self.since, np.where(nothing, 0, later.began))
        )
        return Runs(
            np.where(nothing, later.first, self.first),
            np.where(none, self.last, later.last),
            np.where(nothing, later.began, self.began),
            np.where(none, self.since, joined),
        )

    def grow(self, size: int) -> None:
        """Make room for ``size`` consumers."""
        for name in ("first", "last", "began", "since"):
            setattr(self, name, padded(getattr(self, name), size))


def then(earlier: Array, later: Array) -> Array:
    """Verdicts of two stretches together: the later one's where it said anything."""
    size = max(len(earlier), len(later))
    earlier, later = padded(earlier, size), padded(later, size)
    return np.where(later != SILENT, later, earlier)


def _verdicts() -> Array:
    return np.zeros(0, np.int8)


def _numbers() -> Array:
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class Stretch:
    """Judgements over a stretch of time: a verdict on each key, the runs of each consumer's modes."""

    verdicts: Array = field(default_factory=_verdicts)
    runs: Runs = field(default_factory=Runs)

    def grow(self, keys: int, consumers: int) -> None:
        """Make room for so many keys and consumers."""
        self.verdicts = padded(self.verdicts, keys)
        self.runs.grow(consumers)

    def then(self, later: Stretch) -> Stretch:
        """Both together."""
        return Stretch(then(self.verdicts, later.verdicts), self.runs.then(later.runs))


@dataclass(slots=True)
class Period:
    """A minute or an hour of which the seconds, or the minutes, still stand in the tables.

    ``work`` and ``queue_work`` add up its processing time, ``steps`` and ``told`` count the instants of each key and
    consumer. ``unsure``: judged anew from the tables once it is the first of its level, because a quiet spell's start
    would then be told more coarsely.
    """

    end: int
    fine: Stretch = field(default_factory=Stretch)
    first: Array = field(default_factory=_verdicts)
    coarse: Stretch | None = None
    work: Array = field(default_factory=_numbers)
    steps: Array = field(default_factory=_numbers)
    queue_work: Array = field(default_factory=_numbers)
    told: Array = field(default_factory=_numbers)
    unsure: bool = False
    settled: bool = False

    def grow(self, keys: int, consumers: int) -> None:
        """Make room for so many keys and consumers."""
        self.fine.grow(keys, consumers)
        self.first = padded(self.first, keys)
        if self.coarse is not None:
            self.coarse.grow(keys, consumers)
        if not self.settled:
            self.work, self.steps = padded(self.work, keys), padded(self.steps, keys)
            self.queue_work, self.told = padded(self.queue_work, consumers), padded(self.told, consumers)

    def settle(self) -> None:
        """Nothing can be added any more: let go of what only counting needs."""
        self.settled = True
        self.work, self.steps, self.queue_work, self.told = _numbers(), _numbers(), _numbers(), _numbers()


def rounded_up(seconds: Array, length: int) -> Array:
    """The last seconds of the buckets of ``length`` that hold ``seconds``; 0 stays 0."""
    return np.where(seconds > 0, seconds // length * length + length - 1, 0)
