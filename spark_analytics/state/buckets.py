"""Ages by slot (a key and kind) and bucket of time, added up exactly, as columns of NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lake.schema import HISTOGRAM
from spark_analytics.fold.arrays import Array, entries_of, located, run_starts
from spark_analytics.transforms.lists import sums

_SLOT_BITS = 27
#: What a code can hold: 134 million slots.
MOST_SLOTS = 1 << _SLOT_BITS


def code_of(starts: Any, slots: Any) -> Array:
    """One sortable number for the unix second in which a bucket begins and a slot."""
    coded: Array = (np.asarray(starts, np.int64) << _SLOT_BITS) | np.asarray(slots, np.int64)
    return coded


def slots_of(codes: Array) -> Array:
    """The slots of ``codes``."""
    slots: Array = codes & (MOST_SLOTS - 1)
    return slots


def starts_of(codes: Array) -> Array:
    """The unix seconds in which the buckets of ``codes`` begin."""
    starts: Array = codes >> _SLOT_BITS
    return starts


class Buckets(NamedTuple):
    """Buckets in the order of their codes, each code once; or, before :func:`added_up`, in any order and number.

    ``width``: seconds; ``total``, ``most``: of ages, in seconds; ``cells``: how many entries each bucket has of
    ``indices`` and ``counts``, its histogram, one bucket's after the other's.
    """

    code: Array
    width: Array
    n: Array
    total: Array
    most: Array
    skewed: Array
    cells: Array
    indices: Array
    counts: Array

    def at(self, places: Array) -> Buckets:
        """Those at ``places``, in that order."""
        cells = self.cells[places]
        _, entries = entries_of((np.cumsum(self.cells) - self.cells)[places], cells)
        code, width, n, total, most, skewed = (column[places] for column in self[:6])
        return Buckets(code, width, n, total, most, skewed, cells, self.indices[entries], self.counts[entries])

    def split(self, starts: Iterable[int]) -> Iterator[Buckets]:
        """Copies of those from each of the places ``starts``, which are in order, to before the next one."""
        starts, ends = list(starts), np.concatenate(([0], np.cumsum(self.cells)))
        for begin, end in zip(starts, [*starts[1:], len(self.code)], strict=True):
            low, high = ends[begin], ends[end]
            columns = [column[begin:end].copy() for column in self[:7]]
            yield Buckets(*columns, *(column[low:high].copy() for column in (self.indices, self.counts)))

    def recoded(self, codes: Array, widths: Array | None = None) -> Buckets:
        """The same under other codes."""
        return self._replace(code=codes, width=self.width if widths is None else widths)


def empty() -> Buckets:
    """No buckets."""
    none = np.zeros(0, np.int64)
    return Buckets(none, none, none, np.zeros(0), np.zeros(0), none, none, none, none)


def together(parts: Iterable[Buckets]) -> Buckets:
    """All of ``parts``, one after the other."""
    parts = [part for part in parts if len(part.code)]
    if len(parts) == 1:
        return parts[0]
    return Buckets(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else empty()


def added_up(parts: Iterable[Buckets]) -> Buckets:
    """The sums of ``parts`` by code; of several widths of a code the greatest."""
    every = together(parts)
    ordered = _ordered(every)
    if ordered and (every.code[1:] > every.code[:-1]).all():
        return every
    order = np.argsort(every.code, kind="stable")
    starts = run_starts(every.code[order])
    lengths = np.diff(starts, append=len(order))
    alone = np.repeat(lengths == 1, lengths)
    if not ordered:  # somebody else's histograms
        alone[:] = False
    if alone.all():
        return every.at(order)
    shared = _summed(every.at(order[~alone]) if alone.any() else every)
    if not alone.any():
        return shared
    both = together([every.at(order[alone]), shared])
    return both.at(np.argsort(both.code))


def _ordered(buckets: Buckets) -> bool:
    """Whether each histogram has its indices in order, each once."""
    rises = np.ones(len(buckets.indices) + 1, bool)
    np.greater(buckets.indices[1:], buckets.indices[:-1], out=rises[1:-1])
    rises[np.cumsum(buckets.cells)] = True
    return bool(rises.all())


def _summed(every: Buckets) -> Buckets:
    order = np.argsort(every.code, kind="stable")
    starts = run_starts(every.code[order])
    codes = every.code[order][starts]
    of_row = np.searchsorted(codes, every.code)
    owners, indices, counts = sums(np.repeat(of_row, every.cells), every.indices, every.counts)
    return Buckets(
        codes,
        np.maximum.reduceat(every.width[order], starts),
        np.add.reduceat(every.n[order], starts),
        np.add.reduceat(every.total[order], starts),
        np.maximum.reduceat(every.most[order], starts),
        np.add.reduceat(every.skewed[order], starts),
        np.bincount(owners, minlength=len(codes)),
        indices,
        counts,
    )


def found(among: Buckets, codes: Array) -> tuple[Array, Array]:
    """Where those of ``codes`` stand that are in ``among``, which is in order, and of each code whether it is."""
    places, there = located(codes, among.code)
    return places[there], there


def quantile_indices(buckets: Buckets, percents: Sequence[int]) -> list[Array]:
    """Of each bucket the indices in its histogram that hold these quantiles, by nearest rank; NaN where it has none."""
    found = [np.full(len(buckets.code), np.nan) for _ in percents]
    some = buckets.cells > 0
    if some.any():
        so_far = np.cumsum(buckets.counts)
        ends = np.cumsum(buckets.cells)[some]
        until = so_far[ends - 1]
        totals = np.diff(until, prepend=0)
        for percent, indices in zip(percents, found, strict=True):
            ranks = until - totals - (-totals * percent // 100)
            indices[some] = buckets.indices[np.searchsorted(so_far, ranks)]
    return found


def histograms(buckets: Buckets) -> pa.Array:
    """The histograms as a column; null where a bucket has none."""
    offsets = np.concatenate(([0], np.cumsum(buckets.cells))).astype(np.int32)
    arrays = [pa.array(buckets.indices.astype(np.int32)), pa.array(buckets.counts.astype(np.int64))]
    entries = pa.StructArray.from_arrays(arrays, fields=list(HISTOGRAM.value_type))
    none = buckets.cells == 0
    lists = pa.ListArray.from_arrays(pa.array(offsets), entries, mask=pa.array(none) if none.any() else None)
    return lists.cast(HISTOGRAM)
