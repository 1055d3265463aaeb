"""A Delta table as an Arrow data set, read by Arrow's own file system and never by way of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSystem, SubTreeFileSystem

from lake.address import is_url
from lake.remote import store_of

if TYPE_CHECKING:  # it loads pandas, which a collecting process is spared
    import pyarrow.dataset as ds

#: Conditions ``(column, operator, value)``, all of which hold.
Conditions = Sequence[tuple[str, str, Any]]


def dataset(table: DeltaTable, where: Conditions | None = None) -> ds.Dataset:
    """``table`` at its version; ``where`` leaves out files that cannot hold such rows, by partition and statistics.

    What deltalake gives Arrow by default is an object of Python, which threads of Arrow's let go of after the last row
    is handed out: a process that ends at that moment is ended by ``terminate`` (SIGABRT) instead.
    """
    return table.to_pyarrow_dataset(
        filesystem=_files(table), file_pruning_predicate=None if where is None else list(where)
    )


def _files(table: DeltaTable) -> FileSystem:
    """The folder of ``table``, by a file system of Arrow's own with the options that deltalake was given."""
    if is_url(table.table_uri):
        url = table.table_uri.rstrip("/")
        store = store_of(url, table._storage_options or {})
        return SubTreeFileSystem(store.base, store.files)
    there, path = FileSystem.from_uri(table.table_uri)
    return SubTreeFileSystem(path, there)


def rows_of(table: DeltaTable, columns: Sequence[str] | None = None, where: Conditions | None = None) -> pa.Table:
    """The rows of ``table`` that meet ``where``; files that cannot hold any are not opened."""
    return dataset(table, where).to_table(
        columns=None if columns is None else list(columns),
        filter=None if where is None else pq.filters_to_expression(list(where)),
    )
