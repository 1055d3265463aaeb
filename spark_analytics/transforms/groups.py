"""Rows numbered by the group that they belong to, without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_analytics.transforms.lists import Integers, one_chunk

#: A table of all keys that could be is quicker than sorting while it has at most so many places for each row.
_PLACES_A_ROW = 16
_PLACES = 1 << 20
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Codes:
    """A column as numbers from 0 to below ``size``."""

    numbers: Integers
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
        return Codes(encoding.indices.to_numpy().astype(np.int64), max(1, len(values))), values
    known = pc.index(values, default).as_py()
    if known < 0:
        known, values = len(values), pa.concat_arrays([values, pa.array([default])])
    return Codes(pc.fill_null(encoding.indices, known).to_numpy().astype(np.int64), len(values)), values


def numbered(columns: tuple[Codes, ...]) -> Groups:
    """The groups that ``columns`` make together, in the order of their columns' numbers."""
    code, size = columns[0].numbers, columns[0].size
    for column in columns[1:]:
        if size * column.size >= _LARGEST:
            return _by_sorting(columns)
        code, size = code * column.size + column.numbers, size * column.size
    if size <= max(_PLACES, _PLACES_A_ROW * len(code)):
        there = np.zeros(size, bool)
        there[code] = True
        numbers = np.cumsum(there, dtype=np.int32)
        found, of_row = np.flatnonzero(there), numbers[code].astype(np.int64) - 1
    else:
        found, inverse = np.unique(code, return_inverse=True)
        of_row = inverse.astype(np.int64)
    keys: list[Integers] = []
    for column in reversed(columns):
        found, key = np.divmod(found, column.size)
        keys.append(key)
    return Groups(of_row, tuple(reversed(keys)))


def _by_sorting(columns: tuple[Codes, ...]) -> Groups:
    """For keys that have no common number of 64 bits."""
    found, of_row = np.unique(np.stack([column.numbers for column in columns]), axis=1, return_inverse=True)
    return Groups(of_row.reshape(-1).astype(np.int64), tuple(found))
