"""What brokers told of their queues, sample by sample: the newest of each consumer, and how its counters went on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_analytics.fold.arrays import Array, distinct, padded, run_starts, with_room

#: What a sample says in numbers; NaN is unknown.
NUMBERS = (
    "depth", "in_flight", "in_flight_limit", "oldest_age_seconds", "staleness_seconds", "consumers", "delayed",
    "retention_margin", "prefetch", "visibility_timeout_seconds", "transactional_lag", "transactional_age_seconds",
    "acked_total", "lost_total", "polls_total", "empty_polls_total", "estimated", "sample_interval_seconds",
)  # fmt: skip
#: What a sample says in words, as numbers of :class:`Words`.
WORDS = ("status", "dead_letter_for")
#: One sample. ``consumer`` and ``series`` are numbers; ``reads`` is false for a report of polls alone; ``there`` is
#: what the broker holds.
SAMPLE = np.dtype(
    [("consumer", "i8"), ("series", "i8"), ("sampled_us", "i8"), ("reads", "?"), ("there", "f8")]
    + [(name, "f8") for name in NUMBERS]
    + [(name, "i4") for name in WORDS]
)

#: What :class:`Readings` has of each consumer as it was told last.
_TOLD = ("newest", "limits", "sampled", "backlog")
#: What went on from sample to sample, added up over the window.
CHANGES = ("there_change", "there_us", "acked", "lost", "polls", "empty_polls", "estimated")


class Words:
    """Numbers for texts; 0 stands for null."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: 0}
        self.texts: list[str | None] = [None]

    def number(self, text: str | None) -> int:
        """The number of ``text``, which is given one if it has none."""
        if (number := self._numbers.get(text)) is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number

    def column(self, numbers: Array) -> pa.Array:
        """The texts with these ``numbers``."""
        return pa.array(self.texts, pa.string()).take(pa.array(numbers))


@dataclass(slots=True)
class Lately:
    """What one step adds to the sums over the window: of each consumer the CHANGES, and how many of them were known."""

    consumers: Array
    sums: Array
    known: Array


@dataclass(slots=True)
class Before:
    """What :meth:`Readings.put` replaced."""

    consumers: Array
    told: dict[str, Array]  # by the names of _TOLD
    series: Array
    last: Array
    dead: dict[tuple[int, str], float | None]


class Readings:
    """The newest reading of each consumer, the second that it tells about, and the backlog from events in that second.

    ``sampled_us`` 0: none yet.
    """

    def __init__(self) -> None:
        self.words = Words()
        self.newest = np.zeros(0, SAMPLE)
        self.limits = np.zeros(0)
        self.sampled = np.zeros(0, bool)  # whether there was any sample, of polls alone or not
        self.backlog = np.zeros(0)
        self.sums = np.zeros((0, len(CHANGES)))
        self.known = np.zeros((0, len(CHANGES)), np.int64)
        #: By dead-letter queue and the queue that it serves: its newest depth, None while unknown.
        self.dead: dict[tuple[int, str], float | None] = {}
        self._series: dict[tuple[Any, ...], int] = {}
        self._last = np.zeros(0, SAMPLE)  # by series; `sampled_us` 0: none

    def series(self, name: tuple[Any, ...]) -> int:
        """The number of a series of samples: those of one source about one queue and consumer."""
        number = self._series.setdefault(name, len(self._series))
        self._last = with_room(self._last, number + 1)
        return number

    def grow(self, size: int) -> None:
        """Make room for ``size`` consumers."""
        there = len(self.newest)
        if there >= size:
            return
        for name in (*_TOLD, "sums", "known"):
            setattr(self, name, padded(getattr(self, name), size))
        for name in ("there", *NUMBERS):
            self.newest[name][there:] = np.nan
        for column in (self.limits, self.backlog):
            column[there:] = np.nan

    def put(self, samples: Array) -> tuple[Array, Lately, Before]:
        """Take in ``samples``, all told of one second: the consumers that have a new reading, what is added to the
        window, and what was there before."""
        samples = samples[np.argsort(samples["sampled_us"], kind="stable")]
        consumers = distinct(samples["consumer"])
        series = distinct(samples["series"])
        told = {name: getattr(self, name)[consumers] for name in _TOLD}
        before = Before(consumers, told, series, self._last[series], {})
        lately = self._changes(samples)
        self.sampled[consumers] = True
        limited = samples[~np.isnan(samples["in_flight_limit"])]
        self.limits[limited["consumer"]] = limited["in_flight_limit"]  # of several the last counts
        read = samples[samples["reads"]]
        self.newest[read["consumer"]] = read
        self._put_dead(samples[samples["dead_letter_for"] > 0], before)
        return distinct(read["consumer"]), lately, before

    def restore(self, before: Before) -> None:
        """Undo :meth:`put`."""
        for name, values in before.told.items():
            getattr(self, name)[before.consumers] = values
        self._last[before.series] = before.last
        self.dead |= before.dead

    def overtaken(self, samples: Array) -> bool:
        """Whether one of ``samples`` is older than what its series has taken in."""
        return bool(np.any(samples["sampled_us"] < self._last["sampled_us"][samples["series"]]))

    def add(self, lately: Lately, sign: int) -> None:
        """Add to the sums over the window, or take out of them."""
        self.sums[lately.consumers] += sign * lately.sums
        self.known[lately.consumers] += sign * lately.known

    def _changes(self, samples: Array) -> Lately:
        """How each of ``samples`` differs from the one before it in its series."""
        samples = samples[np.argsort(samples["series"], kind="stable")]
        starts = run_starts(samples["series"])
        previous = np.empty_like(samples)
        previous[1:] = samples[:-1]
        previous[starts] = self._last[samples["series"][starts]]
        ends = np.append(starts[1:], len(samples)) - 1
        self._last[samples["series"][ends]] = samples[ends]
        first = previous["sampled_us"] == 0
        change = _known_if(~first, samples["there"] - previous["there"])
        columns = [change, _known_if(~np.isnan(change), samples["sampled_us"] - previous["sampled_us"])]
        counters = ("acked_total", "lost_total", "polls_total", "empty_polls_total")
        rose = {name: ~first & (samples[name] >= previous[name]) for name in counters}
        rose["polls_total"] = rose["empty_polls_total"] = rose["polls_total"] & rose["empty_polls_total"]
        columns += [_known_if(told, samples[name] - previous[name]) for name, told in rose.items()]
        columns.append(samples["estimated"])  # a number of its own each time, no counter
        values = np.stack(columns, axis=1)
        known = ~np.isnan(values)
        consumers, place = np.unique(samples["consumer"], return_inverse=True)
        sums, counts = np.zeros((len(consumers), len(CHANGES))), np.zeros((len(consumers), len(CHANGES)), np.int64)
        np.add.at(sums, place, np.where(known, values, 0))
        np.add.at(counts, place, known)
        return Lately(consumers, sums, counts)

    def _put_dead(self, samples: Array, before: Before) -> None:
        for consumer, serves, depth in samples[["consumer", "dead_letter_for", "depth"]].tolist():
            for queue in (self.words.texts[serves] or "").split(","):
                place = consumer, queue
                before.dead.setdefault(place, self.dead.get(place))
                self.dead[place] = None if np.isnan(depth) else depth

    def dead_letters(self) -> dict[str, int]:
        """By queue: how many messages its dead-letter queues hold, as far as known."""
        found: dict[str, int] = {}
        for (_, queue), depth in self.dead.items():
            if depth is not None:
                found[queue] = found.get(queue, 0) + int(depth)
        return found

    def over_window(self, name: str, consumers: Array) -> Array:
        """Of each of ``consumers`` the sum of one of CHANGES over the window; NaN where none was known."""
        place = CHANGES.index(name)
        return np.where(self.known[consumers, place] > 0, self.sums[consumers, place], np.nan)


def _known_if(condition: Array, values: Array) -> Array:
    return np.where(condition, values, np.nan)
