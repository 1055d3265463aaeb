"""Of each slot its newest bucket of ages, with its histogram."""

from __future__ import annotations

import numpy as np

from spark_analytics.fold.arrays import Array, entries_of, padded, with_room
from spark_analytics.state.buckets import Buckets, code_of, slots_of, starts_of

_NUMBERS = {
    "start": np.int64, "width": np.int64, "n": np.int64, "total": np.float64, "most": np.float64, "skewed": np.int64,
    "at": np.int64, "cells": np.int64,
}  # fmt: skip


class Newest:
    """Columns by slot; ``n`` is 0 where there is none."""

    def __init__(self) -> None:
        self._of = {name: np.zeros(0, kind) for name, kind in _NUMBERS.items()}
        self._index, self._count = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self._used = 0
        self._known = 0

    def __len__(self) -> int:
        """How many slots have one."""
        return self._known

    def slots(self) -> Array:
        """Those that have one."""
        return np.flatnonzero(self._of["n"] > 0)

    def starts(self, slots: Array) -> Array:
        """In which second the newest bucket of each of ``slots`` begins; −1: it has none."""
        self._reserve_slots(slots)
        return np.where(self._of["n"][slots] > 0, self._of["start"][slots], -1)

    def widths(self, slots: Array) -> Array:
        """How long it is, in seconds."""
        self._reserve_slots(slots)
        widths: Array = self._of["width"][slots]
        return widths

    def put(self, told: Buckets) -> None:
        """Take those of ``told``, buckets as they are now and in order, that are the newest of their slots."""
        slots = slots_of(told.code)
        self._reserve_slots(slots)
        ends = starts_of(told.code) + told.width
        held_ends = np.where(self._of["n"][slots] > 0, self._of["start"][slots] + self._of["width"][slots], -1)
        places = np.flatnonzero((told.n > 0) & (ends >= held_ends))
        order = places[np.argsort(slots[places], kind="stable")]
        last = np.concatenate((slots[order][1:] != slots[order][:-1], [True])) if len(order) else np.zeros(0, bool)
        self._set(told.at(order[last]))

    def drop(self, slots: Array) -> None:
        """Have none for ``slots``."""
        self._reserve_slots(slots)
        self._known -= int((self._of["n"][slots] > 0).sum())
        self._of["n"][slots] = 0

    def buckets(self, slots: Array) -> Buckets:
        """The newest buckets of ``slots``, each of which has one."""
        cells = self._of["cells"][slots]
        at = self._places(slots)
        start, width, n, total, most, skewed = (
            self._of[name][slots] for name in ("start", "width", "n", "total", "most", "skewed")
        )
        indices = self._index[at].astype(np.int64)
        return Buckets(code_of(start, slots), width, n, total, most, skewed, cells, indices, self._count[at])

    def _set(self, newest: Buckets) -> None:
        slots = slots_of(newest.code)
        of = self._of
        self._known += int((of["n"][slots] == 0).sum())
        self._reserve_cells(len(newest.indices))
        self._index[self._used : self._used + len(newest.indices)] = newest.indices
        self._count[self._used : self._used + len(newest.indices)] = newest.counts
        of["start"][slots] = starts_of(newest.code)
        of["at"][slots] = self._used + np.cumsum(newest.cells) - newest.cells
        for name in ("width", "n", "total", "most", "skewed", "cells"):
            of[name][slots] = getattr(newest, name)
        self._used += len(newest.indices)

    def _places(self, slots: Array) -> Array:
        """Where the cells of ``slots`` stand, one slot's after the other's."""
        return entries_of(self._of["at"][slots], self._of["cells"][slots])[1]

    def _reserve_slots(self, slots: Array) -> None:
        if (most := int(slots.max(initial=-1))) >= len(self._of["n"]):
            self._of = {name: with_room(column, most + 1) for name, column in self._of.items()}

    def _reserve_cells(self, more: int) -> None:
        if self._used + more <= len(self._index):
            return
        held = self.slots()
        at, cells = self._places(held), self._of["cells"][held]
        index, count = self._index[at], self._count[at]  # what no slot points to any more is left behind
        self._of["at"][held] = np.cumsum(cells) - cells
        self._used = len(index)
        room = 2 * (self._used + more) + 4096
        self._index, self._count = padded(index, room), padded(count, room)
