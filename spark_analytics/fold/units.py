"""The files of a table a row group at a time, each with the second that none of its rows is before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lake.remote import Location, open_parquet

#: Rows that are taken in at once.
_AT_ONCE = 1 << 16
#: Read as numbers and the few texts that they stand for.
_REPEATING = ("broker", "queue", "subscriber")


def units(files: list[Location]) -> Iterator[tuple[Location, int, int]]:
    """(file, row group, a second that none of its rows is before), for all ``files``."""
    for path in files:
        with open_parquet(path) as file:
            names = file.schema_arrow.names
            column = names.index("bucket_start")
            leaf = next(
                place for place in range(file.metadata.num_columns)
                if file.metadata.schema.column(place).path == names[column]
            )  # fmt: skip
            for group in range(file.metadata.num_row_groups):
                statistics = file.metadata.row_group(group).column(leaf).statistics
                known = statistics is not None and statistics.has_min_max
                yield path, group, unix_micros(statistics.min) // 1_000_000 if known else -(1 << 62)


def in_order(files: list[Location], columns: tuple[str, ...]) -> Iterator[tuple[Location, pa.Table, int]]:
    """(file, rows, a second that none of them, nor of those that follow, is before): all rows of partials, some at a
    time, about in the order of their time."""
    for path, group, start in sorted(units(files), key=lambda unit: unit[2]):
        for rows in row_group(path, group, columns):
            yield path, rows, start


def row_group(path: Location, group: int, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """The rows of a row group, some at a time: a compacted file holds a million in one."""
    with open_parquet(path, pre_buffer=False, read_dictionary=_REPEATING) as file:
        for batch in file.iter_batches(_AT_ONCE, row_groups=[group], columns=list(columns), use_threads=False):
            yield pa.Table.from_batches([batch])


def unix_micros(moment: Any) -> int:
    """A moment as microseconds of unix time."""
    return int(np.datetime64(moment.replace(tzinfo=None), "us").astype(np.int64))
