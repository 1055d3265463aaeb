"""Making and opening a Delta table as its declaration wants it."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from lake.checkpoints import CHECKPOINT_INTERVAL
from lake.errors import UserError, first_line
from lake.remote import Location, Remote, delta_table
from lake.schema import TableSpec
from lake.staged import has_bounds

#: How long files and log entries stay after newer ones replaced them. Each of them is told again by every checkpoint:
#: with a commit a second, Delta's own week would make each checkpoint half a million lines long.
REPLACED_FOR = timedelta(hours=2)
#: Statistics are kept of a gold table's first columns, by which readers narrow down: the log is much shorter for it.
_INDEXED_COLUMNS = {"partials": 7, "marks": 8, "tenant_state": 8, "queue_state": 7, "age_state": 12}
#: How often a table is opened while others change its columns.
_MOST_TRIES = 10


def indexed(spec: TableSpec) -> list[str]:
    """The columns of which the log tells bounds: of those in bronze whatever has any, its nested columns have none."""
    if spec.name in _INDEXED_COLUMNS:
        return list(spec.schema.names[: _INDEXED_COLUMNS[spec.name]])
    return [one.name for one in spec.schema if one.name not in spec.partition_by and has_bounds(one.type)]


def open_table(spec: TableSpec, path: Location) -> DeltaTable:
    """The table ``spec`` in folder ``path``, made if it is not there, with every column of ``spec``.

    Errors as of deltalake; UserError where the table lacks a required column.
    """
    for _ in range(_MOST_TRIES - 1):
        table = _open_or_create(spec, path)
        try:
            _grow(spec, table)
            return table
        except CommitFailedError:
            continue  # another process added the columns first
    _grow(spec, table)
    return table


def _open_or_create(spec: TableSpec, path: Location) -> DeltaTable:
    try:
        return delta_table(path)
    except TableNotFoundError:
        path.mkdir(parents=True, exist_ok=True)
    try:
        return DeltaTable.create(
            str(path),
            schema=spec.schema,
            mode="ignore",
            partition_by=list(spec.partition_by) or None,
            configuration=properties(spec.name),
            storage_options=path.store.options if isinstance(path, Remote) else None,
        )
    except DeltaError:
        return delta_table(path)  # another process made it first, where that is an error


def properties(name: str, replaced_for: timedelta = REPLACED_FOR) -> dict[str, str]:
    """The Delta properties of table ``name``.

    Writers clean up no log by themselves: maintenance does, which knows what streams have not read yet.
    """
    kept = f"interval {round(replaced_for.total_seconds())} seconds"
    told = _INDEXED_COLUMNS.get(name)
    return {
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
        "delta.deletedFileRetentionDuration": kept,
        "delta.logRetentionDuration": kept,
        "delta.enableExpiredLogCleanup": "false",
        **({"delta.dataSkippingNumIndexedCols": str(told)} if told else {}),
    }


def _grow(spec: TableSpec, table: DeltaTable) -> None:
    """Add the nullable columns that this version of Sojourn has and the table lacks: older rows are null there."""
    there = {field.name for field in table.schema().fields}
    missing = [field for field in spec.schema if field.name not in there]
    required = [field.name for field in missing if not field.nullable]
    if required:
        raise UserError(
            f"table {spec.path} of the lake lacks the columns {', '.join(required)}",
            "it was made by another version of Sojourn: use a new lake, and replay its bronze tables into it",
        )
    if missing:
        table.alter.add_columns([Field.from_arrow(field) for field in missing])


def unwritable(rows: pa.Table, spec: TableSpec) -> str:
    """Why ``rows`` cannot be written where no store can be at fault: in memory. Empty where they can."""
    try:
        write_deltalake("memory:///trial", rows, partition_by=list(spec.partition_by) or None)
    except (DeltaError, OSError) as error:
        return first_line(error)
    return ""
