"""The state of one broker at one second, in columns by key and by consumer."""

from __future__ import annotations

from sys import intern
from typing import Any

import numpy as np
import pyarrow as pa

from lake import noisy
from lake.formula import compiled
from lake.store import LakeError
from lake.views.catalogue import FORMULAS
from spark_analytics.fold.arrays import Array, Integers, distinct, padded, run_starts
from spark_analytics.fold.cells import MOST_KEYS, NONE, Buckets, OpenCells
from spark_analytics.fold.lived import Name
from spark_analytics.fold.names import KeyNumbers
from spark_analytics.fold.step import WINDOWED

_TOTALS = ("backlog_sum", "in_flight_sum", "delayed_sum")
_STATE = tuple(compiled(FORMULAS[name]) for name in ("backlog", "in_flight", "ready"))
#: Columns of a tenant's state, and of the sums over a queue's tenants.
BACKLOG, IN_FLIGHT, READY, ACTIVE = range(4)


class State:
    """Everything that adding one step changes; see :mod:`spark_analytics.fold.fold` for how it is taken back.

    By key: `totals` (backlog, busy, delayed as sums), `window` and `window_work` (sums over the window), `last_arrival`
    (a second, 0 = none), `oldest` (enqueue second of the oldest message, NONE = no backlog or unknown), `verdicts` (the
    last one that said anything of the tenant).
    By consumer: `queues` (BACKLOG … ACTIVE summed over tenants), `queue_work`, `modes` (the last one, 0 = it had no
    instant yet) and `since_us`, when it entered it.

    Verdicts and modes depend on every instant of the past, and are judged at each as it was then. What was judged by
    the second stays so when partials are rolled up; who folds them anew has the ends of minutes and hours for instants.
    """

    def __init__(self) -> None:
        self.names: list[Name] = []
        self.consumers: list[tuple[str, str]] = []
        self._keys: dict[Name, int] = {}
        self._consumers: dict[tuple[str, str], int] = {}
        self._queues: dict[str, int] = {}
        self._queue_of: list[int] = []  # of each consumer
        self._numbers = KeyNumbers()
        self._tenant_names = pa.array([], pa.string())
        self.cells = OpenCells()
        self.buckets = Buckets()  # of processing time over the window
        self.consumer_of = np.zeros(0, np.int32)
        self.totals = np.zeros((0, len(_TOTALS)), np.int64)
        self.window = np.zeros((0, len(WINDOWED)), np.int64)
        self.window_work = np.zeros(0, np.int64)
        self.last_arrival = np.zeros(0, np.int64)
        self.oldest = np.zeros(0, np.int64)
        self.told = np.zeros(0, bool)  # keys that partials tell of
        self.verdicts = np.zeros(0, np.int8)
        self.queues = np.zeros((0, 4), np.int64)
        self.queue_work = np.zeros(0, np.int64)
        self.first_second = np.zeros(0, np.int64)
        self.modes = np.zeros(0, np.int8)
        self.since_us = np.zeros(0, np.int64)
        self._by_consumer: tuple[Array, Array, Array] | None = None

    # -- names ------------------------------------------------------------------------------------------------------

    def consumer(self, queue: str, subscriber: str) -> int:
        """The number of a consumer, which is given one if it has none."""
        name = (queue, subscriber)
        if (number := self._consumers.get(name)) is None:
            number = self._consumers[name] = len(self.consumers)
            self.consumers.append(name)
            self._queue_of.append(self._queues.setdefault(queue, len(self._queues)))
            if number >= len(self.queue_work):
                self._grow_consumers(max(64, 2 * number))
        return number

    def key(self, name: Name) -> int:
        """The number of a key, which is given one if it has none."""
        if (number := self._keys.get(name)) is None:
            name = (intern(name[0]), intern(name[1]), name[2])  # a hundred thousand tenants of few queues
            number = self._keys[name] = len(self.names)
            self.names.append(name)
            if number >= MOST_KEYS:
                raise LakeError(f"more than {MOST_KEYS} tenants are too many to keep in memory")
            if number >= len(self.consumer_of):
                self._grow_keys(max(1024, 2 * number))
            self.consumer_of[number] = self.consumer(name[0], name[1])
            self.oldest[number] = NONE
            self._by_consumer = None
        return number

    def keys(self, consumers: list[tuple[str, str]], which: Integers, tenants: pa.Array) -> Integers:
        """The numbers of different keys: each a ``tenants`` of one of ``consumers``."""
        numbers = np.zeros(len(consumers), np.int64)
        for place in distinct(which).tolist():
            numbers[place] = self.consumer(*consumers[place])

        def new(at: Integers) -> list[int]:
            places = which[at].tolist()
            texts = tenants.take(pa.array(at)).to_pylist()
            return [self.key((*consumers[place], text)) for place, text in zip(places, texts, strict=True)]

        return self._numbers.find(numbers[which], tenants, new)

    def key_of(self, name: Name) -> int | None:
        """The number of a key, if it has one."""
        return self._keys.get(name)

    def consumer_of_name(self, name: tuple[str, str]) -> int | None:
        """The number of a consumer, if it has one."""
        return self._consumers.get(name)

    def tenant_names(self) -> pa.Array:
        """The tenant of each key."""
        known = len(self._tenant_names)
        if known < len(self.names):
            new = pa.array([name[2] for name in self.names[known:]], pa.string())
            self._tenant_names = pa.concat_arrays([self._tenant_names, new])
        return self._tenant_names

    def _grow_keys(self, size: int) -> None:
        for name in ("consumer_of", "totals", "window", "window_work", "last_arrival", "oldest", "told", "verdicts"):
            setattr(self, name, padded(getattr(self, name), size))

    def _grow_consumers(self, size: int) -> None:
        there = len(self.first_second)
        for name in ("queues", "queue_work", "first_second", "modes", "since_us"):
            setattr(self, name, padded(getattr(self, name), size))
        self.first_second[there:] = NONE

    def first_seconds(self) -> Integers:
        """Of each consumer the first second of its queue, whoever consumed then; NONE before any event."""
        queues = np.array(self._queue_of, np.int64)
        first = np.full(len(self._queues), NONE, np.int64)
        np.minimum.at(first, queues, self.first_second[: len(queues)])
        return first[queues]

    # -- tenants ----------------------------------------------------------------------------------------------------

    def tenants(self, keys: Any) -> Integers:
        """Of each key: BACKLOG, IN_FLIGHT, READY, ACTIVE."""
        columns = {name: self.totals[keys, place] for place, name in enumerate(_TOTALS)}
        backlog, in_flight, ready = (formula(columns) for formula in _STATE)
        return np.stack((backlog, in_flight, ready, backlog > 0), axis=1).astype(np.int64)

    def add_to_queues(self, consumers: Array, changes: Integers) -> None:
        """Add the changes of tenants' states to their queues' sums."""
        for place in range(self.queues.shape[1]):
            self.queues[:, place] += _sums(consumers, changes[:, place], len(self.queues))

    def work_of(self, consumers: Array, work: Integers) -> Integers:
        """Processing time by consumer."""
        return _sums(consumers, work, len(self.queue_work))

    def judged(
        self, tenants: Integers, consumers: Array, second: int, last_arrival: Any, own: Any, whole: Any
    ) -> tuple[Array, Array]:
        """The verdicts on keys at an instant, from their states, and which enter the noisy ones.

        ``own`` and ``whole`` are the processing times of tenant and queue over the window.
        """
        columns = {
            "backlog": tenants[:, BACKLOG],
            "in_flight": tenants[:, IN_FLIGHT],
            "ready": tenants[:, READY],
            "queue_in_flight": self.queues[consumers, IN_FLIGHT],
            "queue_ready": self.queues[consumers, READY],
            "active_tenants": self.queues[consumers, ACTIVE],
            "window_processing_sum": own,
            "queue_processing_sum": whole,
            "at_second": second,
            "last_arrival_second": last_arrival,
        }
        return noisy.judged(columns)

    # -- queues -----------------------------------------------------------------------------------------------------

    def oldest_of_queues(self, only: Array | None = None) -> Integers:
        """The enqueue second of the oldest message of each consumer, NONE where there is none; over ``only`` a mask of
        keys, if given."""
        found = np.full(len(self.queue_work), NONE, np.int64)
        if not self.names:
            return found
        if self._by_consumer is None:
            order = np.argsort(self.consumer_of[: len(self.names)], kind="stable")
            sorted_ = self.consumer_of[order]
            starts = run_starts(sorted_)
            self._by_consumer = order, starts, sorted_[starts]
        order, starts, consumers = self._by_consumer
        oldest = self.oldest if only is None else np.where(only, self.oldest[: len(self.names)], NONE)
        found[consumers] = np.minimum.reduceat(oldest[order], starts)
        return found

    def turn(self, consumers: Array, modes: Array, as_of_us: int) -> tuple[Array, Array]:
        """The consumers' ``modes`` at one instant; what was there before, for :meth:`turn_back`."""
        before = self.modes[consumers], self.since_us[consumers]
        self.since_us[consumers] = np.where(before[0] != modes, as_of_us, before[1])
        self.modes[consumers] = modes
        return before

    def turn_back(self, consumers: Array, before: tuple[Array, Array]) -> None:
        """Undo :meth:`turn`."""
        self.modes[consumers], self.since_us[consumers] = before


def _sums(groups: Array, amounts: Array, size: int) -> Integers:
    sums = np.bincount(groups, weights=amounts, minlength=size)
    return np.rint(sums).astype(np.int64)
