"""A Parquet file that grows piece by piece, and becomes part of its table by one commit: until then nobody sees it.

Whoever has much to append need not hold it in memory, nor wait with writing until the last piece is there.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from lake.remote import Location, Remote

#: Of a column with a longer text the log tells no bounds: they are read by everybody who opens the table.
LONGEST_BOUND = 64
#: Of so many rows a column of numbers is looked at: with more distinct values it has too many for a dictionary.
LOOKED_AT, MOST_DISTINCT = 10_000, 2_500


class Staged:
    """A file of the table in ``folder`` for rows of ``schema``, all of them in one ``partition``, if it has any.

    Its entry in the log will tell bounds of the columns ``indexed``. Any thread may append; a file that is neither
    added nor dropped is an orphan, which vacuuming removes.
    """

    def __init__(
        self, folder: Location, schema: pa.Schema, indexed: Iterable[str], partition: Mapping[str, str] | None = None
    ) -> None:
        self._partition = dict(partition or {})
        below = [f"{name}={value}" for name, value in self._partition.items()]
        self._name = "/".join([*below, f"part-00000-{uuid4()}-c000.snappy.parquet"])
        self._path = folder / self._name
        self._schema = pa.schema([field for field in schema if field.name not in self._partition])
        self._bounds = {name: _Bounds() for name in indexed}
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._stream: pa.NativeFile | None = None
        self._lock = threading.Lock()

    def append(self, rows: pa.Table) -> None:
        """Write ``rows``, of the schema. Raises OSError where the disk cannot take them."""
        if rows.num_rows == 0:
            return
        rows = rows.select(self._schema.names)
        bounds = {name: _bounds(rows.column(name)) for name in self._bounds}
        with self._lock:
            if self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # Statistics in the file of what readers look for, as in the log: of others they cost a sixth more.
                self._writer = pq.ParquetWriter(
                    self._begun(), self._schema, write_statistics=list(bounds), use_dictionary=_repeating(rows)
                )
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._rows += rows.num_rows
            for name, told in bounds.items():
                self._bounds[name].widen(told)

    def finished(self) -> list[AddAction]:
        """End the file; what a commit says of it. Nothing was appended, nothing is added."""
        if self._writer is None:
            return []
        self._writer.close()
        if isinstance(self._path, Remote):
            assert self._stream is not None
            size, changed = self._stream.tell(), time.time_ns() // 1_000_000
            self._stream.close()  # now it is there
        else:
            about = self._path.stat()
            size, changed = about.st_size, int(about.st_mtime * 1000)
        return [AddAction(self._name, size, self._partition, changed, True, self._statistics())]

    def drop(self) -> None:
        """Remove the file, which no commit has added."""
        if self._writer is not None:
            with suppress(OSError):  # where the disk is full, as when it was written
                self._writer.close()
                if self._stream is not None:
                    self._stream.close()
            with suppress(OSError) if isinstance(self._path, Remote) else nullcontext():
                self._path.unlink(missing_ok=True)

    def _begun(self) -> Path | pa.NativeFile:
        """What the writer writes to."""
        if isinstance(self._path, Path):
            return self._path
        self._stream = self._path.store.files.open_output_stream(self._path.arrow_path)
        return self._stream

    def _statistics(self) -> str:
        told = {name: bounds for name, bounds in self._bounds.items() if bounds.known}
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: _written(bounds.least) for name, bounds in told.items()},
                "maxValues": {name: _written(bounds.most) for name, bounds in told.items()},
                "nullCount": {name: bounds.nulls for name, bounds in self._bounds.items()},
            }
        )


class LaidDown:
    """Files of the table at ``folder`` that other processes have finished, for one commit."""

    def __init__(self, folder: Location, adds: Sequence[AddAction]) -> None:
        self._folder = folder
        self._adds = list(adds)

    def finished(self) -> list[AddAction]:
        """What a commit says of them."""
        return self._adds

    def drop(self) -> None:
        """Remove the files, which no commit has added."""
        for add in self._adds:
            with suppress(OSError):
                (self._folder / add.path).unlink(missing_ok=True)


def has_bounds(kind: pa.DataType) -> bool:
    """Whether the log can tell the bounds of a column of this type."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def partitions(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """``rows`` by their values in the columns ``names``, of which there is one at most.

    Raises ValueError for rows without such a value, OverflowError for a day that no calendar has.
    """
    if not names:
        yield {}, rows
        return
    (name,) = names
    values = pc.unique(rows.column(name))
    for value in values:
        if (told := value.as_py()) is None:
            raise ValueError(f"column {name!r} is required")
        yield {name: str(told)}, rows if len(values) == 1 else rows.filter(pc.equal(rows.column(name), value))


class _Bounds:
    """The least and the most of a column, in all pieces so far, and how many nulls it has."""

    def __init__(self, least: Any = None, most: Any = None, nulls: int = 0) -> None:
        self.least, self.most, self.nulls = least, most, nulls

    @property
    def known(self) -> bool:
        """Whether there is any value, and none too long to tell."""
        if isinstance(self.most, str):
            return max(len(self.least), len(self.most)) <= LONGEST_BOUND
        return self.most is not None

    def widen(self, other: _Bounds) -> None:
        """Take in what ``other`` tells of further rows."""
        self.nulls += other.nulls
        if other.most is not None:
            self.least = other.least if self.least is None else min(self.least, other.least)
            self.most = other.most if self.most is None else max(self.most, other.most)


def _repeating(rows: pa.Table) -> bool | list[str]:
    """Which columns of a file that begins with ``rows`` are written as numbers and what they stand for.

    Not those of measured times, in which hardly any value comes twice: a third of the time that writing takes goes into
    looking for some, and the file is larger for it.
    """
    if rows.num_rows < LOOKED_AT:
        return True
    first = rows.slice(0, LOOKED_AT)
    single = [
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type) and pc.count_distinct(first.column(field.name)).as_py() > MOST_DISTINCT
    ]
    return [path for field in rows.schema if field.name not in single for path in columns_of(field)]


def columns_of(field: pa.Field, above: str = "") -> Iterator[str]:
    """The columns of a Parquet file that hold ``field``, by their paths."""
    path, kind = f"{above}{field.name}", field.type
    if pa.types.is_map(kind):
        yield from columns_of(kind.key_field, f"{path}.key_value.")
        yield from columns_of(kind.item_field, f"{path}.key_value.")
    elif pa.types.is_list(kind):
        yield from columns_of(kind.value_field.with_name("element"), f"{path}.list.")
    elif pa.types.is_struct(kind):
        for part in kind:
            yield from columns_of(part, f"{path}.")
    else:
        yield path


def _bounds(column: pa.ChunkedArray) -> _Bounds:
    told = pc.min_max(column).as_py()
    return _Bounds(told["min"], told["max"], column.null_count)


def _written(value: Any) -> Any:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else value
