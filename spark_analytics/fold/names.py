"""Numbers for keys, looked up column by column: a hundred thousand tenants are too many to look up one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_analytics.fold.arrays import Integers, located

_SHIFT = 32


class KeyNumbers:
    """Remembers the number of each (place, tenant). A place is a number of the caller's own, below 2³¹."""

    def __init__(self) -> None:
        self._tenants: Any = pa.array([], pa.string())
        self._codes = np.zeros(0, np.int64)  # sorted
        self._numbers = np.zeros(0, np.int64)

    def find(self, places: Integers, tenants: pa.Array, new: Callable[[Integers], list[int]]) -> Integers:
        """The number of each (place, tenant), all of them different; ``new`` gives numbers to those not known, by their
        positions."""
        codes = (places << _SHIFT) + self._tenant_numbers(tenants)
        at, known = located(codes, self._codes)
        found = np.empty(len(codes), np.int64)
        found[known] = self._numbers[at[known]]
        unknown = np.flatnonzero(~known)
        if len(unknown):
            found[unknown] = new(unknown)
            unknown = unknown[np.argsort(codes[unknown])]
            self._codes = np.insert(self._codes, at[unknown], codes[unknown])
            self._numbers = np.insert(self._numbers, at[unknown], found[unknown])
        return found

    def _tenant_numbers(self, tenants: pa.Array) -> Integers:
        numbers = pc.index_in(tenants, value_set=self._tenants)
        found: Integers = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        if numbers.null_count:
            more = tenants.filter(numbers.is_null()).dictionary_encode()
            found[found < 0] = more.indices.to_numpy(zero_copy_only=False) + len(self._tenants)
            self._tenants = pa.concat_arrays([self._tenants, more.dictionary])
        return found
