"""The open cells of all keys: how many messages of which enqueue second are in whose backlog."""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_analytics.fold.arrays import Array, Integers, entries_of, located, run_starts

#: No second: later than any.
NONE = np.iinfo(np.int64).max
#: The cell of leavers whose enqueue second is unknown.
UNKNOWN = -(1 << 38)
_SHIFT = 39
MOST_KEYS = 1 << (62 - _SHIFT)


def code_of(keys: Any, seconds: Any) -> Integers:
    """One sortable number for a key (below MOST_KEYS) and an enqueue second."""
    coded: Integers = (np.asarray(keys, np.int64) << _SHIFT) + (np.asarray(seconds, np.int64) - UNKNOWN)
    return coded


class Cells:
    """Amounts by code, sorted by it; those that came to nothing are left out."""

    def __init__(self) -> None:
        self._codes = np.empty(0, np.int64)
        self._open = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, codes: Integers, nets: Integers) -> None:
        """Change the cells ``codes`` (distinct, in order) by ``nets``."""
        if len(codes) == 0:
            return
        places, there = located(codes, self._codes)
        at = places[there]
        self._open[at] += nets[there]
        emptied = at[self._open[at] == 0]
        new = np.flatnonzero(~there & (nets != 0))
        if len(emptied):
            kept = np.ones(len(self._codes), bool)
            kept[emptied] = False
            self._codes, self._open = self._codes[kept], self._open[kept]
        if len(new):
            put = places[new] - np.searchsorted(emptied, places[new]) + np.arange(len(new))
            old = np.ones(len(self._codes) + len(new), bool)
            old[put] = False
            self._codes, self._open = (
                _filled(old, before, put, came) for before, came in ((self._codes, codes[new]), (self._open, nets[new]))
            )


def _filled(old: Array, before: Integers, put: Integers, came: Integers) -> Integers:
    """``before`` where ``old``, and ``came`` in the places ``put``."""
    filled = np.empty(len(old), np.int64)
    filled[old], filled[put] = before, came
    return filled


class OpenCells(Cells):
    """How many messages of each key and enqueue second are in the backlog."""

    def oldest(self, keys: Integers) -> Integers:
        """The enqueue second of the oldest message of each of ``keys``; NONE where there is none.

        Leavers of unknown age are taken to have been the oldest: queues are mostly first in, first out.
        """
        starts = code_of(keys, UNKNOWN)
        low, high = np.searchsorted(self._codes, starts), np.searchsorted(self._codes, starts + (1 << _SHIFT))
        found = np.full(len(keys), NONE, np.int64)
        some = np.flatnonzero(high > low)
        if len(some) == 0:
            return found
        first = low[some]
        plain = (self._codes[first] != starts[some]) & (self._open[first] > 0)
        found[some[plain]] = self._codes[first[plain]] - starts[some[plain]] + UNKNOWN
        hard = some[~plain]
        if len(hard):
            found[hard] = self._behind_unknown(starts[hard], low[hard], high[hard])
        return found

    def _behind_unknown(self, starts: Integers, low: Integers, high: Integers) -> Integers:
        segment, index = entries_of(low, high - low)
        known = self._codes[index] != starts[segment]
        amounts = np.where(known, np.maximum(self._open[index], 0), 0)
        totals = np.cumsum(amounts)
        before = (totals - amounts)[run_starts(segment)]
        unknown = np.zeros(len(low), np.int64)
        unknown[segment[~known]] = -self._open[index[~known]]
        there = np.flatnonzero(known & (self._open[index] > 0) & (totals - before[segment] > unknown[segment]))
        found = np.full(len(low), NONE, np.int64)
        which, at = np.unique(segment[there], return_index=True)
        found[which] = self._codes[index[there[at]]] - starts[which] + UNKNOWN
        return found


_BUCKET_SHIFT = 13
_BUCKET_OFFSET = 1 << (_BUCKET_SHIFT - 1)


def bucket_codes(keys: Any, buckets: Any) -> Integers:
    """One sortable number for a key and a histogram's bucket."""
    coded: Integers = (np.asarray(keys, np.int64) << _BUCKET_SHIFT) + np.asarray(buckets, np.int64) + _BUCKET_OFFSET
    return coded


class Buckets(Cells):
    """The histograms of all keys."""

    def p99(self, count: int) -> Array:
        """The bucket of the 99th percentile of each of the first ``count`` keys; NaN where nothing was counted."""
        so_far = np.concatenate(([0], np.cumsum(self._open)))
        ends = so_far[np.searchsorted(self._codes, bucket_codes(np.arange(count + 1), -_BUCKET_OFFSET))]
        totals = np.diff(ends)
        # The first at which 100 × the count so far reaches 99 × the total: the sums only grow, from key to key, too.
        some = np.flatnonzero(totals)
        reached = np.searchsorted(so_far, ends[some] - (-totals[some] * 99 // 100)) - 1
        found = np.full(count, np.nan)
        found[some] = (self._codes[reached] & ((1 << _BUCKET_SHIFT) - 1)) - _BUCKET_OFFSET
        return found
