"""What brokers last told of their queues, sample by sample: only what modes and coverage rest on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lake.now.levels import padded

Array = npt.NDArray[Any]


class Reading(NamedTuple):
    """One sample of one consumer (by number). ``reads`` is false for a report of polls alone; NaN is unknown."""

    consumer: int
    sampled_us: int
    reads: bool
    there: float
    told_age: float
    dead_letters: bool


_COLUMNS = {
    "sampled_us": np.int64,
    "there": np.float64,
    "told_age": np.float64,
    "dead_letters": np.bool_,
    "second": np.int64,
    "backlog": np.float64,
    "backlog_by_minute": np.float64,
    "backlog_by_hour": np.float64,
}


@dataclass(slots=True)
class Readings:
    """The newest reading of each consumer: the second it tells about, and the backlog from events in that second.

    Where that second was rolled up the backlog at the end of its minute, or hour, counts. ``sampled_us`` 0: none yet.
    """

    columns: dict[str, Array] = field(
        default_factory=lambda: {name: np.zeros(0, kind) for name, kind in _COLUMNS.items()}
    )

    def grow(self, size: int) -> None:
        """Make room for ``size`` consumers."""
        for name, column in self.columns.items():
            there = len(column)
            if there < size:
                self.columns[name] = padded(column, size)
                if column.dtype == np.float64:
                    self.columns[name][there:] = np.nan

    def put(self, second: int, readings: list[Reading]) -> Array:
        """Take over the newest of ``readings``, all of one second; the consumers that had one."""
        newest: dict[int, Reading] = {}
        for reading in readings:
            if reading.reads and (
                reading.consumer not in newest or reading.sampled_us >= newest[reading.consumer].sampled_us
            ):
                newest[reading.consumer] = reading
        consumers = np.fromiter(newest, np.int64, len(newest))
        for name in ("sampled_us", "there", "told_age", "dead_letters"):
            self.columns[name][consumers] = [getattr(reading, name) for reading in newest.values()]
        self.columns["second"][consumers] = second
        return consumers

    def at(self, consumers: Array) -> dict[str, Array]:
        """What is held of ``consumers``."""
        return {name: column[consumers] for name, column in self.columns.items()}

    def restore(self, consumers: Array, before: dict[str, Array]) -> None:
        """Put back what :meth:`at` gave."""
        for name, column in before.items():
            self.columns[name][consumers] = column

    def backlog_told(self, minutes_until: int, hours_until: int) -> Array:
        """The backlog from events when each was read; NaN = none."""
        second = self.columns["second"]
        by_level = np.where(second > hours_until, self.columns["backlog_by_minute"], self.columns["backlog_by_hour"])
        return np.where(second > minutes_until, self.columns["backlog"], by_level)
