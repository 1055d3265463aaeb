"""Which rows of one broker's state are not as they were written last."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from spark_analytics.fold.arrays import Array, padded
from spark_analytics.fold.outcome import Columns

Mask = Array


class Differ:
    """Remembers the rows of things by their numbers; ``columns`` are compared."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._columns = tuple(columns)
        self._last: dict[str, Array] = {}
        self._seen = np.zeros(0, bool)

    def __len__(self) -> int:
        """How many things it has seen."""
        return int(self._seen.sum())

    def changed(self, numbers: Array, columns: Columns) -> Mask:
        """Of each of the things ``numbers``, which differ, whether it is new or not as it was."""
        if len(numbers) == 0:
            return np.zeros(0, bool)
        if (most := int(numbers.max())) >= len(self._seen):
            room = max(1024, 2 * most)
            self._seen = padded(self._seen, room)
            for name in self._columns:
                self._last[name] = padded(self._last.get(name, np.zeros(0, columns[name].dtype)), room)
        mask: Mask = ~self._seen[numbers]
        for name in self._columns:
            before, now = self._last[name][numbers], columns[name]
            different = before != now
            if now.dtype.kind == "f":
                different &= ~(np.isnan(before) & np.isnan(now))
            mask |= different
        at = numbers[mask]
        self._seen[at] = True
        for name in self._columns:
            kind = np.result_type(self._last[name], columns[name])  # what nobody has is a number of another kind
            self._last[name] = self._last[name].astype(kind, copy=False)
            self._last[name][at] = columns[name][mask]
        return mask
