"""Which first attempt on a queue with named subscribers was its message's first, over all of them.

Of the newest messages the earliest attempt is remembered: at most MOST_MESSAGES, and none that was received longer than
REMEMBERED_SECONDS before the newest. Of a message that was enqueued since then (SKEW_SECONDS later, as clocks differ),
and is not remembered, nothing came before; for any other the caller has to look at `marks`, which keep first attempts
until they are settled and two days more (:mod:`spark_analytics.maintenance.receipts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.ordered import precedes
from spark_analytics.fold.arrays import Array, distinct
from spark_analytics.state.ages_of import FOLDED, KINDS, Keys, of_receipts
from spark_analytics.state.buckets import Buckets, added_up, code_of

MOST_MESSAGES = 1_000_000
REMEMBERED_SECONDS = 3600
#: How far a consumer's clock may be behind the one that told when a message was enqueued: it may have been received so
#: much before that.
SKEW_SECONDS = 60
_GENERATION = 100_000
_AT_ONCE = 1 << 16  # rows whose texts are Python's at a time
_MICROS = 1_000_000

#: One message: a hash of its name, its earliest attempt so far (its time in µs, its age in seconds, −1 unknown, and the
#: number of its subscriber), the slot and index that count it; ``settled``: nothing changes that any more.
MESSAGE = np.dtype(
    [("name", "i8"), ("at_us", "i8"), ("age", "f8"), ("subscriber", "i8"), ("slot", "i8"), ("index", "i4"),
     ("skewed", "?"), ("settled", "?")]
)  # fmt: skip

#: Given rows of marks, all that the table told before of the same messages.
Earlier = Callable[[pa.Table], pa.Table]


@dataclass(slots=True)
class Receipts:
    """What is remembered of messages, by generations of their coming; keys are numbered by ``keys``."""

    keys: Keys
    _generations: list[Array] = field(default_factory=list)
    _subscribers: dict[str, int] = field(default_factory=dict)
    _before_us: dict[int, int] = field(default_factory=dict)  # by broker: since when all is remembered
    _all_before_us: int = -1  # the same of those that are not among them

    def __len__(self) -> int:
        return sum(map(len, self._generations))

    def known_since(self, broker: int) -> int:
        """The unix second after which everything that ``broker`` was told to have received is remembered."""
        return self._since_us(broker) // _MICROS

    def _since_us(self, broker: int) -> int:
        return self._before_us.get(broker, self._all_before_us)

    def forget_until(self, broker: int, at_us: int) -> None:
        """What ``broker`` was told of until then is not to be found here."""
        self._before_us[broker] = max(at_us, self._since_us(broker))

    def add(self, rows: pa.Table, earlier: Earlier) -> Array:
        """Take in ``rows`` of marks, first attempts of named subscribers; the codes of the buckets that change."""
        came = self._earliest(self._messages(rows))
        unknown = self._places(came["name"])[0] < 0
        brokers = self.keys.broker_of(came["slot"] // len(KINDS))
        since = np.array([self._since_us(number) for number in range(len(self.keys.brokers))], np.int64)
        doubtful = unknown & ((came["age"] < 0) | came["skewed"] | _before_all(came, since[brokers]))
        if doubtful.any():
            mine = np.isin(self._names(rows), came["name"][doubtful])
            told = earlier(rows.filter(pa.array(mine)))
            self._insert(self._told(told))
        touched = self._put(came)
        self._prune()
        return touched

    def load(self, rows: pa.Table, since_us: int) -> None:
        """Remember what ``rows``, all that was received since ``since_us``, tell, of which buckets tell already."""
        self._all_before_us = since_us
        told = self._told(rows)
        self._insert(told[~_before_all(told, since_us)])
        self._prune()

    def firsts(self, rows: pa.Table, newest: int) -> Buckets:
        """What the messages of ``rows``, all that tables tell of them, add to partials that have come to fold
        ``newest``; nothing is remembered of them."""
        if "fold" in rows.column_names and rows.num_rows:
            fold = pc.fill_null(rows.column("fold"), 0).to_numpy()
            names = self._names(rows)
            rows = rows.filter(pa.array(~np.isin(names, names[(fold > 0) & (fold <= newest)])))
        told = self._told(rows)
        return added_up([_buckets(told[told["age"] >= 0])])

    def _put(self, came: Array) -> Array:
        generation, place = self._places(came["name"])
        new = came[generation < 0]
        touched = [_codes(new)]
        for number in distinct(generation[generation >= 0]).tolist():
            mine = generation == number
            there, its = self._generations[number], came[mine]
            before = there[place[mine]]
            earlier = precedes(self._order(its), self._order(before)) & ~before["settled"]
            touched += [_codes(before[earlier]), _codes(its[earlier])]
            there[place[mine][earlier]] = its[earlier]
        self._insert(new)
        return distinct(*touched)

    def buckets(self, codes: Array) -> Buckets:
        """The sums over the remembered messages that are in the buckets ``codes``."""
        parts = []
        for generation in self._generations:
            mine = generation[np.isin(code_of(generation["at_us"] // _MICROS, generation["slot"]), codes)]
            parts.append(_buckets(mine[mine["age"] >= 0]))
        return added_up(parts)

    def newest(self, slot: int, before: int) -> int:
        """The newest second before ``before`` in which a remembered message counts in ``slot``; −1: none."""
        found = -1
        for generation in self._generations:
            seconds = generation["at_us"] // _MICROS
            mine = seconds[(generation["slot"] == slot) & (generation["age"] >= 0) & (seconds < before)]
            found = max(found, int(mine.max(initial=-1)))
        return found

    # -- messages -----------------------------------------------------------------------------------------------------

    def _names(self, rows: pa.Table) -> Array:
        texts = rows.select(["broker", "queue", "message_id"])
        few = (
            zip(*(column.to_pylist() for column in part.columns), strict=True) for part in texts.to_batches(_AT_ONCE)
        )
        return np.fromiter(map(hash, chain.from_iterable(few)), np.int64, rows.num_rows)

    def _messages(self, rows: pa.Table) -> Array:
        found = np.zeros(rows.num_rows, MESSAGE)
        if rows.num_rows == 0:
            return found
        found["name"] = self._names(rows)
        found["at_us"] = rows.column("occurred_at").cast(pa.int64()).to_numpy()
        found["age"] = pc.fill_null(rows.column("age_seconds"), -1.0).to_numpy()
        subscribers = rows.column("subscriber").combine_chunks().cast(pa.string()).dictionary_encode()
        texts = subscribers.dictionary.to_pylist()
        numbers = np.array([self._subscribers.setdefault(text, len(self._subscribers)) for text in texts], np.int64)
        found["subscriber"] = numbers[subscribers.indices.to_numpy(zero_copy_only=False)]
        found["slot"] = self.keys.unnamed(rows) * len(KINDS) + FOLDED
        found["index"] = pc.fill_null(rows.column("age_index"), 0).to_numpy()
        found["skewed"] = pc.fill_null(rows.column("age_skewed"), False).to_numpy()
        return found

    def _told(self, rows: pa.Table) -> Array:
        """What counts of each message of ``rows``: the attempt that was folded, or the earliest."""
        messages = self._messages(rows)
        if "fold" not in rows.column_names or rows.column("fold").null_count == rows.num_rows:
            return self._earliest(messages)
        fold = pc.fill_null(rows.column("fold"), -1).to_numpy()
        settled = np.isin(messages["name"], messages["name"][fold >= 0])
        messages["settled"] = settled
        messages["age"][settled & (fold <= 0)] = -1.0  # another's is the message's first
        order = np.lexsort((-fold, messages["name"]))
        decided = order[settled[order]]
        first = np.unique(messages["name"][decided], return_index=True)[1]
        both = np.concatenate((messages[decided[first]], self._earliest(messages[~settled])))
        return both[np.argsort(both["name"])]

    def _earliest(self, messages: Array) -> Array:
        order = np.lexsort((*reversed(self._order(messages)), messages["name"]))
        return messages[order[np.unique(messages["name"][order], return_index=True)[1]]]

    def _order(self, messages: Array) -> tuple[Array, Array, Array]:
        """By what, the first one first, an attempt of a message is earlier than another."""
        ranks = np.argsort(np.argsort(list(self._subscribers))) if self._subscribers else np.zeros(1, np.int64)
        return messages["at_us"], messages["age"], ranks[messages["subscriber"]]

    def _places(self, names: Array) -> tuple[Array, Array]:
        """In which generation each of ``names`` is, and where; −1: in none."""
        generation, place = np.full(len(names), -1), np.zeros(len(names), np.int64)
        for number, there in enumerate(self._generations):
            if len(there) == 0:
                continue
            at = np.minimum(np.searchsorted(there["name"], names), len(there) - 1)
            mine = there["name"][at] == names
            generation[mine], place[mine] = number, at[mine]
        return generation, place

    def _insert(self, messages: Array) -> None:
        """Remember ``messages``, in the order of their names, none of which is known."""
        if len(messages) == 0:
            return
        if len(messages) > _GENERATION:
            messages = messages[np.argsort(messages["at_us"], kind="stable")]
            for start in range(0, len(messages), _GENERATION):
                part = messages[start : start + _GENERATION]
                self._insert(part[np.argsort(part["name"])])
            return
        if not self._generations or len(self._generations[-1]) >= _GENERATION:
            self._generations.append(np.zeros(0, MESSAGE))
        newest = self._generations[-1]
        at = np.searchsorted(newest["name"], messages["name"])
        self._generations[-1] = np.insert(newest, at, messages)

    def _prune(self) -> None:
        if not self._generations:
            return
        too_old = int(self._generations[-1]["at_us"].max()) - REMEMBERED_SECONDS * _MICROS
        while len(self._generations) > 1 and (
            len(self) > MOST_MESSAGES or self._generations[0]["at_us"].max() < too_old
        ):
            gone = self._generations.pop(0)
            brokers = self.keys.broker_of(gone["slot"] // len(KINDS))
            for number in distinct(brokers).tolist():
                self.forget_until(number, int(gone["at_us"][brokers == number].max()))


def _before_all(messages: Array, since_us: Any) -> Array:
    """Of each of ``messages`` whether it may have been received by ``since_us`` already."""
    enqueued = messages["at_us"] - np.ceil(messages["age"] * _MICROS).astype(np.int64)
    before: Array = enqueued <= since_us + SKEW_SECONDS * _MICROS
    return before


def _codes(messages: Array) -> Array:
    counted = messages[messages["age"] >= 0]
    return code_of(counted["at_us"] // _MICROS, counted["slot"])


def _buckets(messages: Array) -> Buckets:
    return of_receipts(
        messages["at_us"] // _MICROS, messages["slot"], messages["age"], messages["index"], messages["skewed"]
    )


def first_attempts(rows: pa.Table) -> Any:
    """Those of ``rows`` of marks that are first attempts of named subscribers."""
    first = pc.and_(pc.equal(rows.column("event_type"), "received"), pc.equal(rows.column("attempt"), 1))
    return rows.filter(pc.fill_null(pc.and_(first, pc.not_equal(rows.column("subscriber"), "")), False))
