"""Columns of lists taken apart and put together again, without a loop over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]


def one_chunk(column: pa.ChunkedArray) -> Any:
    """The column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def sums(owners: Integers, values: Integers, weights: Integers) -> tuple[Integers, Integers, Integers]:
    """The weights summed for each (owner, value), in that order."""
    if len(owners) == 0:
        return owners, values, weights
    order = np.lexsort((values, owners))
    owners, values, weights = owners[order], values[order], weights[order]
    first = np.ones(len(owners), dtype=bool)
    first[1:] = (owners[1:] != owners[:-1]) | (values[1:] != values[:-1])
    return owners[first], values[first], np.add.reduceat(weights, np.flatnonzero(first))


def lists_of(owners: Integers, values: pa.StructArray, rows: int) -> pa.Array:
    """``values`` cut into one list a row; null for a row that owns none."""
    lengths = np.bincount(owners, minlength=rows)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(lengths == 0))
