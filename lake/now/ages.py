"""The newest bucket of each kind of age of each key, kept commit by commit: the counterpart of `stage_ages_now`."""

from __future__ import annotations

from sys import intern
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.now.cells import run_starts, summed
from lake.now.levels import padded
from lake.now.lived import numbered
from lake.now.names import KeyNumbers
from lake.tables import AGE_KINDS, FOLDED_KIND, HISTOGRAM

Array = npt.NDArray[Any]
#: (broker, queue, subscriber, tenant), as partials have it.
Name = tuple[str, ...]

_NAMES = ("broker", "queue", "subscriber", "tenant")
_VALUES = ("count", "sum", "max", "skewed", "histogram")
_FOLDED = f"{FOLDED_KIND}_age_count"
#: The columns of partials that are read.
COLUMNS = (
    *_NAMES, "bucket_start", "bucket_seconds", *(f"{kind}_age_{value}" for kind in AGE_KINDS for value in _VALUES),
    _FOLDED,
)  # fmt: skip
_NUMBERS = {
    "start": np.int64,
    "width": np.int32,
    "n": np.int64,
    "total": np.float64,
    "most": np.float64,
    "skewed": np.int64,
    "at": np.int64,
    "cells": np.int32,
    "p50": np.int32,
    "p90": np.int32,
    "p99": np.int32,
}
_SHIFT, _OFFSET = 13, 1 << 12
_FIRST = AGE_KINDS.index("first_attempt")


class Ages:
    """One slot for each key and kind.

    ``ambiguous``: a key has two newest buckets, of different lengths, or ages over several subscribers, which rest on
    marks, too.
    """

    def __init__(self) -> None:
        self.ambiguous = False
        self._numbers = KeyNumbers()
        self._places_known: dict[tuple[str, ...], int] = {}
        self._brokers: list[str] = []
        self._new: list[Name] = []  # keys that `_texts` does not hold yet
        self._texts = [pa.array([], pa.string()) for _ in _NAMES]
        self._named: list[pa.Array] = list(self._texts)
        self._slots = {name: np.zeros(0, kind) for name, kind in _NUMBERS.items()}
        self._index, self._count = np.zeros(0, np.int32), np.zeros(0, np.int64)  # the histograms' cells, one by one
        self._used = 0

    def add(self, rows: pa.Table) -> None:
        """Rows of partials (COLUMNS, as far as their file has them) that came."""
        keys = self._keys_of(rows)
        self._note_folded(rows)
        for number, kind in enumerate(AGE_KINDS):
            self._add(keys * len(AGE_KINDS) + number, rows, kind, rolled=False)

    def roll(self, rows: pa.Table) -> None:
        """Rows of partials that earlier ones were rolled up into."""
        keys = self._keys_of(rows)
        self._note_folded(rows)
        for number, kind in enumerate(AGE_KINDS):
            self._add(keys * len(AGE_KINDS) + number, rows, kind, rolled=True)

    def _note_folded(self, rows: pa.Table) -> None:
        if _FOLDED in rows.column_names:
            self.ambiguous = self.ambiguous or bool(pc.any(pc.greater(rows.column(_FOLDED), 0)).as_py())

    def is_finer(self, broker: str, minutes_until: int, hours_until: int) -> bool:
        """Whether a slot of ``broker`` still tells by the second, or minute, what partials tell more coarsely."""
        start, width = self._slots["start"], self._slots["width"]
        fine = ((width < 60) & (start <= minutes_until)) | ((width < 3600) & (start <= hours_until))
        fine &= self._slots["n"] > 0
        return any(self._brokers[slot // len(AGE_KINDS)] == broker for slot in np.flatnonzero(fine))

    def _keys_of(self, rows: pa.Table) -> Array:
        names, places = numbered(rows, _NAMES), numbered(rows, _NAMES[:-1])
        numbers = np.array(
            [self._places_known.setdefault(place, len(self._places_known)) for place in places.distinct], np.int64
        )
        tenants, place_of = names.column(3), places.of_row[names.first]

        def new(at: Array) -> list[int]:
            known = len(self._brokers)
            owners = [places.distinct[place] for place in place_of[at].tolist()]
            self._brokers += [intern(owner[0]) for owner in owners]
            self._new += [
                (*owner, text) for owner, text in zip(owners, tenants.take(pa.array(at)).to_pylist(), strict=True)
            ]
            return list(range(known, len(self._brokers)))

        keys = self._numbers.find(numbers[place_of], tenants, new)
        room = len(self._slots["n"])
        if len(self._brokers) * len(AGE_KINDS) > room:
            self._slots = {
                name: padded(column, max(4096, 2 * len(self._brokers) * len(AGE_KINDS)))
                for name, column in self._slots.items()
            }
            self._slots["start"][room:] = -1 << 62
        return keys[names.of_row]

    def _add(self, slots: Array, rows: pa.Table, kind: str, *, rolled: bool) -> None:
        counts = pc.fill_null(rows.column(f"{kind}_age_count"), 0).to_numpy()
        told = np.flatnonzero(counts > 0)
        if len(told) == 0:
            return
        starts = rows.column("bucket_start").cast(pa.int64()).to_numpy() // 1_000_000
        widths = rows.column("bucket_seconds").to_numpy()
        order = told[np.lexsort((starts[told], slots[told]))]
        last = np.flatnonzero(np.concatenate((slots[order][1:] != slots[order][:-1], [True])))
        newest, of_newest = slots[order[last]], np.searchsorted(slots[order[last]], slots[order])
        candidate = starts[order[last]]
        held, held_width = self._slots["start"][newest], self._slots["width"][newest]
        if rolled:
            replaces = (candidate <= held) & (held < candidate + widths[order[last]])
            joins = np.zeros(len(newest), bool)
        else:
            replaces, joins = candidate > held, candidate == held
            self.ambiguous = self.ambiguous or bool(np.any(joins & (held_width != widths[order[last]])))
        taken = (replaces | joins)[of_newest] & (starts[order] == candidate[of_newest])
        order, of_newest = order[taken], of_newest[taken]
        self.ambiguous = self.ambiguous or bool(np.any(widths[order] != widths[_first_of(order, of_newest)]))
        self._merge(newest, of_newest, order, joins, rows, kind, starts, widths)

    def _merge(
        self, newest: Array, group: Array, order: Array, joins: Array, rows: pa.Table, kind: str,
        starts: Array, widths: Array,
    ) -> None:  # fmt: skip
        """Put the rows ``order``, each of the slot ``newest[group]``, into their slots; added to it where it joins."""
        if len(order) == 0:
            return
        firsts = run_starts(group)
        slots, joining = newest[group[firsts]], joins[group[firsts]]
        values = {
            value: pc.fill_null(rows.column(f"{kind}_age_{value}"), 0).to_numpy()[order] for value in _VALUES[:-1]
        }
        into = self._slots
        codes, amounts = self._cells_of(rows.column(f"{kind}_age_histogram"), order, newest[group])
        old = slots[joining]
        old_codes, old_amounts = self._held_cells(old)
        into["start"][slots], into["width"][slots] = starts[order[firsts]], widths[order[firsts]]
        for name, value in (("n", "count"), ("total", "sum"), ("skewed", "skewed")):
            added = np.add.reduceat(values[value], firsts)
            into[name][slots] = np.where(joining, into[name][slots], 0) + added
        most = np.maximum.reduceat(values["max"], firsts)
        into["most"][slots] = np.where(joining, np.maximum(into["most"][slots], most), most)
        codes, amounts = summed(np.concatenate((codes, old_codes)), np.concatenate((amounts, old_amounts)))
        self._put_cells(slots, codes, amounts)

    def _cells_of(self, column: pa.ChunkedArray, order: Array, slots: Array) -> tuple[Array, Array]:
        lists = column.combine_chunks().take(pa.array(order))
        lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
        entries = pc.list_flatten(lists)
        index, count = (pc.struct_field(entries, [place]).to_numpy(zero_copy_only=False) for place in (0, 1))
        owner = slots[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)]
        return (owner.astype(np.int64) << _SHIFT) + index + _OFFSET, count.astype(np.int64)

    def _held_cells(self, slots: Array) -> tuple[Array, Array]:
        at, owner = self._places(slots)
        return (slots[owner].astype(np.int64) << _SHIFT) + self._index[at] + _OFFSET, self._count[at]

    def _places(self, slots: Array) -> tuple[Array, Array]:
        """Where the cells of ``slots`` stand, one after the other, and to which of them each belongs."""
        lengths = self._slots["cells"][slots]
        owner = np.repeat(np.arange(len(slots)), lengths)
        before = np.cumsum(lengths) - lengths
        return np.arange(len(owner)) - before[owner] + self._slots["at"][slots][owner], owner

    def _put_cells(self, slots: Array, codes: Array, amounts: Array) -> None:
        """The cells of ``slots`` (in order) from now on, and the quantiles that follow from them."""
        owner = np.searchsorted(slots, codes >> _SHIFT)
        lengths = np.bincount(owner, minlength=len(slots))
        starts = np.cumsum(lengths) - lengths
        index = ((codes & ((1 << _SHIFT) - 1)) - _OFFSET).astype(np.int32)
        self._reserve(len(codes))
        self._index[self._used : self._used + len(codes)] = index
        self._count[self._used : self._used + len(codes)] = amounts
        self._slots["at"][slots] = self._used + starts
        self._slots["cells"][slots] = lengths
        self._used += len(codes)
        some = lengths > 0
        so_far = np.cumsum(amounts)
        before = np.concatenate(([0], so_far))[starts]
        totals = np.concatenate(([0], so_far))[starts + lengths] - before
        for quantile in (50, 90, 99):
            ranks = before + -(-totals * quantile // 100)
            found = np.searchsorted(so_far, ranks[some])
            self._slots[f"p{quantile}"][slots[some]] = index[found]

    def _reserve(self, more: int) -> None:
        if self._used + more <= len(self._index):
            return
        held = np.flatnonzero(self._slots["n"] > 0)
        at, _ = self._places(held)
        index, count = self._index[at], self._count[at]  # what no slot points to any more is left behind
        lengths = self._slots["cells"][held]
        self._slots["at"][held] = np.cumsum(lengths) - lengths
        self._used = len(index)
        room = 2 * (self._used + more) + 4096
        self._index, self._count = padded(index, room), padded(count, room)

    def table(self) -> pa.Table:
        """One row for each slot that has one, as `stage_age_rows_now` has them; `slot` is a number of the row's own."""
        held = np.flatnonzero(self._slots["n"] > 0)
        # What was received on a queue without named subscribers was received by the first of them.
        names = self._columns()
        unnamed = pc.equal(self._texts[2], "").to_numpy(zero_copy_only=False)
        firsts = held[(held % len(AGE_KINDS) == _FIRST) & unnamed[held // len(AGE_KINDS)]]
        kinds = [*AGE_KINDS, FOLDED_KIND]
        kind = np.concatenate((held % len(AGE_KINDS), np.full(len(firsts), len(AGE_KINDS))))
        slots = np.concatenate((held, firsts))
        keys = pa.array(slots // len(AGE_KINDS))
        values = {name: self._slots[name][slots] for name in _NUMBERS}
        known = values["cells"] > 0
        return pa.table(
            {
                "slot": np.concatenate((held * 2, firsts * 2 + 1)),
                "start_second": values["start"],
                "bucket_seconds": values["width"],
                **{name: column.take(keys) for name, column in zip(_NAMES, names, strict=True)},
                "kind": pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int8)), pa.array(kinds)),
                "n": values["n"],
                "total_seconds": values["total"],
                "max_seconds": values["most"],
                "skewed": values["skewed"],
                **{name: pa.array(values[name], mask=~known) for name in ("p50", "p90", "p99")},
                "histogram": self._histograms(slots),
            }
        )

    def _columns(self) -> list[pa.Array]:
        """The names of all keys: tenants as text, what few differ in as dictionaries."""
        if self._new:
            new = [pa.array(column, pa.string()) for column in zip(*self._new, strict=True)]
            self._texts = [pa.concat_arrays(pair) for pair in zip(self._texts, new, strict=True)]
            self._named = [*(text.dictionary_encode() for text in self._texts[:-1]), self._texts[-1]]
            self._new.clear()
        return self._named

    def _histograms(self, slots: Array) -> pa.Array:
        at, _ = self._places(slots)
        offsets = np.concatenate(([0], np.cumsum(self._slots["cells"][slots]))).astype(np.int32)
        arrays = [pa.array(self._index[at]), pa.array(self._count[at])]
        entries = pa.StructArray.from_arrays(arrays, fields=list(HISTOGRAM.value_type))
        empty = np.diff(offsets) == 0
        lists = pa.ListArray.from_arrays(pa.array(offsets), entries, mask=pa.array(empty) if empty.any() else None)
        return lists.cast(HISTOGRAM)


def _first_of(order: Array, group: Array) -> Array:
    """For each of ``order`` the first one of its group; groups stand together."""
    if len(order) == 0:
        return order
    firsts = run_starts(group)
    return np.repeat(order[firsts], np.diff(np.concatenate((firsts, [len(order)]))))
