"""Whether files that replace others tell the same: sums that rolling up and rearranging must leave as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.follow import Change
from lake.remote import Location
from lake.snapshot import read_file
from spark_analytics.fold import lived

_SUMMED = ("enqueued", *lived.COUNTED, "started", "retries", "finished_unreceived")
#: What is read of files that replace others.
COLUMNS = ("broker", "bucket_start", "bucket_seconds", *_SUMMED)

Sums = npt.NDArray[np.int64]


class Totals:
    """The sums over each file of partials that was read."""

    def __init__(self) -> None:
        self._of: dict[Location, Sums | None] = {}  # None: there, but not read under this name

    def put(self, path: Location, rows: pa.Table) -> None:
        """Rows of ``path`` were read."""
        before = self._of.get(path)
        self._of[path] = _sums(rows) if before is None else before + _sums(rows)

    def arranged(self, change: Change) -> None:
        """Files were put together without any change of rows."""
        for path in change.removed:
            self._of.pop(path, None)
        self._of |= dict.fromkeys(change.added)

    def replaced(self, change: Change, rows: Mapping[Location, pa.Table]) -> bool:
        """Files were replaced by others, of which these are the ``rows``; whether their sums are the same."""
        before = sum((self._sums(path) for path in change.removed), np.zeros(len(_SUMMED), np.int64))
        for path in change.removed:
            self._of.pop(path, None)
        added = {path: _sums(rows[path]) for path in change.added}
        self._of |= added
        return np.array_equal(before, sum(added.values(), np.zeros(len(_SUMMED), np.int64)))

    def _sums(self, path: Location) -> Sums:
        known = self._of.get(path)
        if known is None:
            known = self._of[path] = _sums(read_file(path, COLUMNS))
        return known


def _sums(rows: pa.Table) -> Sums:
    return np.array([rows.column(name).to_numpy().sum() for name in _SUMMED], np.int64)
