"""One Delta table as Arrow, kept current: its files never change, so each is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake.dataset import dataset
from lake.errors import first_line
from lake.listing import refresh
from lake.log import log_entry
from lake.remote import Location, delta_table, located, open_parquet, tables_at
from lake.schema import TableSpec
from lake.store import LakeError, conform

#: A table with more bytes on disk than this is scanned at each query instead of being held in memory.
CACHED_BYTES = 128 * 1024 * 1024


class FileGone(LakeError):
    """A file that a commit added was replaced since, and removed by maintenance: read the newest files instead. Where
    it is still among those, it is lost."""

    def __init__(self, path: object) -> None:
        super().__init__(f"file {path} is not there: it was replaced since, or is lost")


class Snapshot:
    """The newest state of the table ``spec`` of the lake at ``root``; a table that is not there yet reads as empty.

    Without ``hold`` it is scanned at each query, however small it is.
    """

    def __init__(self, spec: TableSpec, root: Path, *, hold: bool = True) -> None:
        self._hold = hold
        self.spec = spec
        self._schema = spec.schema  # the columns that are held
        self.path = tables_at(root) / spec.path
        self._table: DeltaTable | None = None
        self._parts: dict[Location, pa.Table] = {}

    def version(self) -> int:
        """The table's newest version, −1 before there is a table."""
        try:
            if self._table is None:
                self._table = delta_table(self.path)
            elif self._changed(self._table.version()):
                refresh(self._table)
        except TableNotFoundError:
            return -1
        except (DeltaError, OSError) as error:
            raise LakeError(f"table {self.path} cannot be read: {first_line(error)}") from error
        return self._table.version()

    def _changed(self, version: int) -> bool:
        """Whether ``version`` is no longer the newest; asked far more often than it is so, without listing the log."""
        return log_entry(self.path, version + 1).exists() or not log_entry(self.path, version).exists()

    @property
    def table(self) -> DeltaTable | None:
        """The table as of the last :meth:`version`; None before there is one."""
        return self._table

    def files(self) -> list[Location]:
        """The files that hold the table, as of the last :meth:`version`."""
        return [] if self._table is None else self._located(self._table)

    @property
    def size(self) -> int:
        """The bytes of those files."""
        return 0 if self._table is None else _bytes(self._table)

    def _located(self, table: DeltaTable) -> list[Location]:
        return [located(self.path, uri) for uri in table.file_uris()]

    def files_at(self, version: int) -> list[Location]:
        """The files that held the table at ``version``, which the log still has. Raises LakeError."""
        try:
            return self._located(delta_table(self.path, version))
        except (DeltaError, OSError) as error:
            raise LakeError(f"table {self.path} cannot be read: {first_line(error)}") from error

    def current(self, known: int | None) -> tuple[Any, int]:
        """What a query engine can scan (an Arrow table or data set) and its version; None if ``known`` is current."""
        version = self.version()
        if version == known:
            return None, version
        if self._table is None or version < 0:
            return self.spec.schema.empty_table(), version
        if not self._hold or _bytes(self._table) > CACHED_BYTES:
            self._parts.clear()
            return _with_all_columns(dataset(self._table), self.spec.schema), version
        return self._read_new_files(self._table), version

    def _read_new_files(self, table: DeltaTable) -> pa.Table:
        paths = self._located(table)
        self._parts = {path: self._parts.get(path) or self._read(path) for path in paths}
        return pa.concat_tables([self.spec.schema.empty_table(), *self._parts.values()])

    def _read(self, path: Location) -> pa.Table:
        return self._whole(path, read_file(path))

    def _whole(self, path: Location, part: pa.Table) -> pa.Table:
        """Rows of the file at ``path`` with all columns that are held."""
        for column, value in _partition_values(path, self.spec).items():
            part = part.append_column(column, pa.array([value] * part.num_rows))
        return conform(part, self._schema)


def read_file(path: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one data file; LakeError where it cannot be read."""
    try:
        with open_parquet(path) as file:
            return file.read(columns=None if columns is None else list(columns), use_threads=False)
    except FileNotFoundError as error:
        raise FileGone(path) from error
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"file {path} cannot be read: {error}") from error


def pieces_of(path: Location, columns: Sequence[str], most: int) -> Iterator[pa.Table]:
    """The rows of one data file, ``most`` at a time; LakeError where it cannot be read."""
    try:
        with open_parquet(path) as file:
            for batch in file.iter_batches(most, columns=list(columns), use_threads=False):
                yield pa.Table.from_batches([batch])
    except FileNotFoundError as error:
        raise FileGone(path) from error
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"file {path} cannot be read: {error}") from error


def _with_all_columns(files: ds.Dataset, schema: pa.Schema) -> ds.Dataset:
    """``files`` with the columns that a table of an older version lacks: null."""
    lacking = [field for field in schema if field.name not in files.schema.names]
    return files.replace_schema(pa.schema([*files.schema, *lacking])) if lacking else files


def _partition_values(path: Location, spec: TableSpec) -> dict[str, date]:
    values = {}
    for folder in str(path).split("/"):
        name, separator, value = folder.partition("=")
        if separator and name in spec.partition_by:
            values[name] = date.fromisoformat(unquote(value))
    return values


def _bytes(table: DeltaTable) -> int:
    sizes = pa.table(table.get_add_actions(flatten=True)).column("size_bytes")
    return sum(sizes.to_pylist())
