"""Which rows of a table of raw state are not as they were written last."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


class Differ:
    """Remembers the rows of one table, ordered by key; ``columns`` are compared."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._columns = tuple(columns)
        self._last: dict[str, pa.Array] | None = None

    def forget(self) -> None:
        """Nothing was written yet."""
        self._last = None

    def changed(self, rows: pa.Table) -> Mask | None:
        """Of each of ``rows`` whether it is new or differs. None where rows that were there are there no more."""
        now = {name: _array(rows.column(name)) for name in ("key", *self._columns)}
        before, self._last = self._last, now
        if before is None:
            return np.ones(rows.num_rows, bool)
        known = len(before["key"])
        # Keys are numbered as they come and rows ordered by them: what was there before comes first.
        if rows.num_rows < known or not now["key"].slice(0, known).equals(before["key"]):
            return None
        mask = np.ones(rows.num_rows, bool)
        different = (_different(before[name], now[name].slice(0, known)) for name in self._columns)
        mask[:known] = reduce(np.logical_or, different, np.zeros(known, bool))
        return mask


def _array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array.cast(pa.string()) if pa.types.is_dictionary(array.type) else array


def _different(before: Any, now: Any) -> Mask:
    unequal = pc.fill_null(pc.not_equal(before, now.cast(before.type)), False)
    one_null = pc.xor(before.is_null(), now.is_null())
    different: Mask = pc.or_(unequal, one_null).to_numpy(zero_copy_only=False)
    return different
