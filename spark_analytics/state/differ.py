"""Which rows of one broker's state are not as they were written last."""

from __future__ import annotations

import numpy as np

from spark_analytics.fold.arrays import Array, padded
from spark_analytics.fold.outcome import Columns

Mask = Array


class Differ:
    """Remembers the rows of things by their numbers: always the same columns, as floats, which all they hold fits."""

    def __init__(self) -> None:
        self._last = np.zeros((0, 0))
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
            self._last = self._last if len(self._last) else np.zeros((len(columns), 0))
            self._last = np.ascontiguousarray(padded(self._last.T, room).T)
        now = np.array(list(columns.values()), np.float64)
        before = self._last[:, numbers]
        different = (before != now) & ((before == before) | (now == now))  # of two that are unknown none has changed
        mask: Mask = different.any(axis=0) | ~self._seen[numbers]
        at = numbers[mask]
        self._seen[at] = True
        self._last[:, at] = now[:, mask]
        return mask
