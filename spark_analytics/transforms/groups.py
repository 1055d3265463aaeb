"""Rows numbered by the group that they belong to, without a loop over rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_analytics.transforms.lists import Integers, one_chunk

#: A table of all keys that could be is quicker than sorting while it has at most so many places for each row.
_PLACES_A_ROW = 16
_PLACES = 1 << 20
_LARGEST, _LARGEST_NARROW = 1 << 62, 1 << 31


@dataclass(frozen=True, slots=True)
class Codes:
    """A column as numbers from 0 to below ``size``."""

    numbers: npt.NDArray[np.signedinteger[Any]]
    size: int


@dataclass(frozen=True, slots=True)
class Groups:
    """``of_row`` is the number of each row's group; ``keys`` are the groups' own numbers, one array a column."""

    of_row: Integers
    keys: tuple[Integers, ...]

    def __len__(self) -> int:
        return len(self.keys[0])


def encoded(column: pa.ChunkedArray, default: str) -> tuple[Codes, pa.Array]:
    """A column of strings as numbers, and the strings they stand for; null stands for ``default``."""
    encoding = one_chunk(column if pa.types.is_dictionary(column.type) else column.dictionary_encode())
    values = encoding.dictionary.cast(pa.string())
    if encoding.null_count == 0:
        return Codes(encoding.indices.to_numpy(), max(1, len(values))), values
    known = pc.index(values, default).as_py()
    if known < 0:
        known, values = len(values), pa.concat_arrays([values, pa.array([default])])
    return Codes(pc.fill_null(encoding.indices, known).to_numpy(), len(values)), values


def numbered(columns: tuple[Codes, ...]) -> Groups:
    """The groups that ``columns`` make together, in the order of their columns' numbers."""
    size = math.prod(column.size for column in columns)
    if size >= _LARGEST:
        return _by_sorting(columns)
    # Narrow numbers take half the time, and a column of one value, as that of the broker, none.
    width = np.dtype(np.int32 if size < _LARGEST_NARROW else np.int64)
    code: npt.NDArray[Any] = np.zeros(len(columns[0].numbers), width)
    for column in columns:
        if column.size > 1:
            code *= column.size
            code += column.numbers.astype(width, copy=False)
    if size <= max(_PLACES, _PLACES_A_ROW * len(code)):
        there = np.zeros(size, bool)
        there[code] = True
        found = np.flatnonzero(there)
        numbers = np.zeros(size, np.int32)
        numbers[found] = np.arange(len(found), dtype=np.int32)
        of_row = numbers.take(code).astype(np.int64)
    else:
        found, inverse = np.unique(code, return_inverse=True)
        found, of_row = found.astype(np.int64), inverse.astype(np.int64)
    keys: list[Integers] = []
    for column in reversed(columns):
        found, key = np.divmod(found, column.size)
        keys.append(key)
    return Groups(of_row, tuple(reversed(keys)))


def _by_sorting(columns: tuple[Codes, ...]) -> Groups:
    """For keys that have no common number of 64 bits."""
    found, of_row = np.unique(np.stack([column.numbers for column in columns]), axis=1, return_inverse=True)
    return Groups(of_row.reshape(-1).astype(np.int64), tuple(found))
