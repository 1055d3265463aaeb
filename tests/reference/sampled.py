"""What the broker itself says of its queues, by brute force: the part of the reference that looks at samples."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tests.reference.lives import SECOND, Event, Queue, Row, micros

#: What is told as the newest reading told it.
TOLD = (
    "consumers",
    "delayed",
    "status",
    "retention_margin",
    "prefetch",
    "visibility_timeout_seconds",
    "dead_letter_for",
    "transactional_lag",
    "transactional_age_seconds",
    "sample_interval_seconds",
)


def named_as_events_are(samples: list[Row], events: list[Event]) -> list[Row]:
    """``samples`` with the subscribers that events have; ``series`` keeps what each sample itself named.

    Where the events of a queue name no subscriber, and its samples one alone, both mean the same consumer.
    """
    told: dict[tuple[str, str], set[str]] = {}
    for event in events:
        told.setdefault(event.queue[:2], set()).add(event.queue.subscriber)
    ours: dict[tuple[str, str], set[str]] = {}
    for sample in samples:
        if sample.get("subscriber"):
            ours.setdefault((sample["broker"], sample["queue"]), set()).add(sample["subscriber"])
    found = []
    for sample in samples:
        place = sample["broker"], sample["queue"]
        same = told.get(place) == {""} and len(ours.get(place, ())) == 1
        name = sample.get("subscriber") or ""
        found.append(sample | {"subscriber": "" if same else name, "series": name})
    return found


class Sampled:
    """``samples`` (dicts with the columns of bronze) as they are known at each second of data time."""

    samples: list[Row]
    newest: dict[str, int]
    window: int
    rolled: Mapping[str, tuple[int, int]]  # of a broker: until which second it is told by the minute, and by the hour

    def width(self, broker: str, second: int) -> int:
        """How many seconds are told as one where ``second`` is."""
        minutes, hours = self.rolled.get(broker, (-1, -1))
        return 3600 if second <= hours else 60 if second <= minutes else 1

    def placed(self, broker: str, second: int) -> int:
        """The second that tells of ``second``: the last one of its minute, or hour, where these are told as one."""
        width = self.width(broker, second)
        return second // width * width + width - 1

    def _sampled_second(self, sample: Row) -> int:
        return self.placed(sample["broker"], micros(sample["sampled_at"]) // SECOND)

    def in_window(self, broker: str, then: int, second: int) -> bool:
        """Whether what is told of the second ``then`` is in the window that ends with ``second``.

        A minute, or hour, is a window of its own, and in no other.
        """
        if self.width(broker, second) > 1 or self.width(broker, then) > 1:
            return then == second
        return second - self.window < then <= second

    def now_second(self, broker: str) -> int:
        return self.newest[broker] // SECOND

    def as_of(self, broker: str, second: int) -> int:
        return min((second + 1) * SECOND, self.newest[broker])

    def _samples_of(self, queue: Queue) -> list[Row]:
        mine = [s for s in self.samples if (s["broker"], s["queue"], s["subscriber"]) == queue]
        return sorted(mine, key=lambda sample: micros(sample["sampled_at"]))

    def _samples_until(self, queue: Queue, second: int) -> list[Row]:
        """The samples known at ``second``; at data time all of them, for the newest is what is known now."""
        now = second == self.now_second(queue.broker)
        return [s for s in self._samples_of(queue) if now or self._sampled_second(s) <= second]

    def _newest_reading(self, queue: Queue, second: int) -> Row | None:
        """The newest sample that is a reading of the broker; a report of polls, or of estimates, alone is none."""
        told = [
            s
            for s in self._samples_until(queue, second)
            if s.get("depth") is not None
            or s.get("in_flight") is not None
            or (s.get("polls_total") is None and s.get("estimated") is None)
        ]
        return told[-1] if told else None

    @staticmethod
    def _there(sample: Row | None) -> int | None:
        """The messages that the broker holds: depth and, where it counts them apart, those in flight."""
        if sample is None or sample.get("depth") is None:
            return None
        return int(sample["depth"] + (sample.get("in_flight") or 0))

    def _sampled_age(self, queue: Queue, second: int) -> float | None:
        """The oldest age that the broker told, grown by the time since then; None where it holds nothing."""
        newest = self._newest_reading(queue, second)
        if newest is None or newest.get("oldest_age_seconds") is None or self._there(newest) == 0:
            return None
        waited = max(0, self.as_of(queue.broker, second) - micros(newest["sampled_at"])) / SECOND
        return float(newest["oldest_age_seconds"] + waited)

    def _sampled_drain(self, queue: Queue, second: int) -> Row:
        """Whether what the broker holds grows or falls, from the changes between the samples of the window."""
        newest = self._newest_reading(queue, second)
        if newest is not None and newest.get("dead_letter_for"):  # nobody is meant to consume them
            return {"drain_state": None, "drain_eta_seconds": None}
        there = self._there(newest)
        changes, spans = [], []
        for before, after in self._sample_pairs(queue, second):
            if (now := self._there(after)) is not None and (then := self._there(before)) is not None:
                changes.append(now - then)
                spans.append(micros(after["sampled_at"]) - micros(before["sampled_at"]))
        acked = self._acked(queue, second)
        state, eta = None, None
        if there == 0:
            state = "idle"
        elif changes:
            change = sum(changes)
            if change < 0:
                state = "draining"
                eta = there * sum(spans) / (-change * SECOND) if there else None
            elif acked == 0 or (acked is None and change == 0 and not self._replaced(newest, sum(spans))):
                state = "stalled"
            else:
                state = "growing"
        return {"drain_state": state, "drain_eta_seconds": eta}

    @staticmethod
    def _replaced(newest: Row | None, span: int) -> bool:
        """Whether all that is there came while samples were taken, ``span`` microseconds: what was there before left.

        Where none waits, an age of 0 tells of nothing that is at work.
        """
        age = newest and newest.get("oldest_age_seconds")
        return bool(newest and (newest["depth"] or age) and age is not None and age * SECOND < span)

    def _acked(self, queue: Queue, second: int) -> int | None:
        """What was acknowledged between the samples of the window; where the counter fell it was restarted."""
        return self._counted("acked_total", queue, second)

    def _counted(self, counter: str, queue: Queue, second: int) -> int | None:
        steps = []
        for before, after in self._sample_pairs(queue, second):
            counts = [before.get(counter), after.get(counter)]
            if None not in counts and counts[1] >= counts[0]:
                steps.append(counts[1] - counts[0])
        return sum(steps) if steps else None

    def _estimated(self, queue: Queue, second: int) -> int | None:
        """The events of the window that are estimates."""
        known = [s for s in self._samples_until(queue, second) if s.get("estimated") is not None]
        lately = [s["estimated"] for s in known if self._sampled_lately(s, second)]
        return sum(lately) if lately else None

    def _sample_pairs(self, queue: Queue, second: int) -> list[tuple[Row, Row]]:
        """Each sample of the window with the one before it, of the same source."""
        by_source: dict[tuple[str, str], list[Row]] = {}
        for sample in self._samples_until(queue, second):
            by_source.setdefault((sample.get("source", ""), sample["series"]), []).append(sample)
        pairs = [pair for samples in by_source.values() for pair in pairwise(samples)]
        return [pair for pair in pairs if self._sampled_lately(pair[1], second)]

    def _sampled_lately(self, sample: Row, second: int) -> bool:
        """Whether a sample that is known at ``second`` is of the window; those ahead of data time count for it."""
        then = self._sampled_second(sample)
        return then > second or self.in_window(sample["broker"], then, second)

    def _broker_says(self, queue: Queue, second: int) -> Row:
        known = self._samples_until(queue, second)
        newest = self._newest_reading(queue, second) or {}
        staleness = None
        if newest:
            waited = max(0, self.as_of(queue.broker, second) - micros(newest["sampled_at"])) / SECOND
            staleness = waited + (newest.get("staleness_seconds") or 0.0)
        limits = [s["in_flight_limit"] for s in known if s.get("in_flight_limit") is not None]
        return {
            "depth": newest.get("depth"),
            "in_flight": newest.get("in_flight"),
            "in_flight_limit": limits[-1] if limits else None,
            "empty_poll_ratio": self._empty_poll_ratio(queue, second),
            "dlq_depth": self._dlq_depth(queue, second),
            "staleness_seconds": staleness,
            "acked": self._acked(queue, second),
            "lost": self._counted("lost_total", queue, second),
            "estimated": self._estimated(queue, second),
            **{name: newest.get(name) for name in TOLD},
        }

    def _empty_poll_ratio(self, queue: Queue, second: int) -> float | None:
        """Empty polls ÷ polls between the samples of the window; where a counter fell it was restarted."""
        polls = empty = 0
        for before, after in self._sample_pairs(queue, second):
            values = [s.get(name) for s in (before, after) for name in ("polls_total", "empty_polls_total")]
            if None in values or values[2] < values[0] or values[3] < values[1]:
                continue
            polls += values[2] - values[0]
            empty += values[3] - values[1]
        return empty / polls if polls else None

    def _dlq_depth(self, queue: Queue, second: int) -> int | None:
        newest = [
            known[-1]["depth"]
            for each in self._serving(queue)
            if (known := [s for s in self._samples_until(each, second) if queue.queue in _served(s)])
        ]
        known_depths = [depth for depth in newest if depth is not None]
        return sum(known_depths) if known_depths else None

    def _serving(self, queue: Queue) -> set[Queue]:
        """The dead-letter queues that ever said that they serve ``queue``."""
        return {
            Queue(s["broker"], s["queue"], s["subscriber"])
            for s in self.samples
            if s["broker"] == queue.broker and queue.queue in _served(s)
        }


def _served(sample: Row) -> list[str]:
    """The queues that a dead-letter queue serves."""
    return (sample.get("dead_letter_for") or "").split(",")
