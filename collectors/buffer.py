"""What has been read and not yet committed: bounded, and rolled up where the lake is slower than the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from collectors.records import Event, Rejected, is_mark
from collectors.rollup import Rollup

#: Low bits of a commit's number. The high bits are the source's position, so that numbers rise with it; the low ones
#: tell commits apart that were made at one position: a message's receipt may become known while the source is silent.
STEP_BITS = 16


def position_of(version: int) -> int:
    """The source's position that the commit numbered ``version`` reaches."""
    return version >> STEP_BITS


@dataclass(frozen=True, slots=True)
class Batch:
    """One commit: all that happened up to ``version``, and never changed again, so that it can be repeated.

    ``state`` is what must be remembered of single messages when their events are inside ``rollup``.
    """

    version: int
    events: Sequence[Event]
    rejected: Sequence[Rejected] = ()
    rollup: Rollup | None = None
    state: pa.Table | None = None


@dataclass(slots=True)
class Buffer:
    """Collects events while the batch before is being committed.

    At ``capacity`` all but the marks (:func:`is_mark`) are rolled up. Where what remains still takes half of it, the
    buffer is ``full`` and the tap reads no further: its source is durable and waits.
    """

    capacity: int
    version: int  # of the last batch sealed, or recovered
    conflated: int = 0
    full: bool = False
    _position: int = field(init=False)
    _events: list[Event] = field(init=False, default_factory=list)
    _rejected: list[Rejected] = field(init=False, default_factory=list)
    _rollup: Rollup | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._position = position_of(self.version)

    def __len__(self) -> int:
        return len(self._events) + (len(self._rollup) if self._rollup else 0)

    def add(self, events: Sequence[Event], rejected: Sequence[Rejected], position: int) -> None:
        """Take all that the source told up to ``position``."""
        self._events += events
        self._rejected += rejected
        self._position = position
        if len(self._events) >= self.capacity:
            self._conflate()
        self.full = self.full or len(self._rejected) >= self.capacity

    def _conflate(self) -> None:
        marks = [event for event in self._events if is_mark(event)]
        rest = [event for event in self._events if not is_mark(event)]
        self._rollup = self._rollup or Rollup()
        self._rollup.add(rest)
        self._events = marks
        self.conflated += len(rest)
        self.full = 2 * len(self) > self.capacity

    def seal(self, state: Callable[[], pa.Table]) -> Batch | None:
        """Everything so far as one batch; None if there is none. ``state`` is asked only after a roll-up."""
        if not self._events and not self._rejected and self._rollup is None:
            return None
        floor = self._position << STEP_BITS
        self.version = max(floor, self.version + 1)
        if position_of(self.version) != self._position:
            raise OverflowError("more commits at one position than can be numbered")
        batch = Batch(self.version, self._events, self._rejected, self._rollup, state() if self._rollup else None)
        self._events, self._rejected, self._rollup, self.full = [], [], None, False
        return batch
