"""What tables are declared with: types of columns, and a table's place, schema and partitions.

Timestamps are UTC in microseconds, seconds are floats, a column is nullable unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
#: Buckets of :mod:`lake.histogram`, in any order; an index may repeat, counts add up.
HISTOGRAM = pa.list_(pa.struct([pa.field("index", pa.int32()), pa.field("count", pa.int64())]))
#: Messages added to (+) or taken from (−) the backlog, by the unix second in which they were enqueued.
#: ``second`` is null where the leaving message's enqueue time is unknown.
BACKLOG_CELLS = pa.list_(pa.struct([pa.field("second", pa.int64()), pa.field("net", pa.int64())]))
LABELS = pa.map_(pa.string(), pa.string())
#: What one reading tells of each tenant in one queue; the counts mean what those of the whole queue do.
TENANT_SHARES = pa.list_(
    pa.struct({"tenant": pa.string(), "depth": pa.int64(), "in_flight": pa.int64(), "delayed": pa.int64(),
               "oldest_age_seconds": pa.float64()})
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A Delta table: where it stands below the lake's root, its Arrow schema and its partition columns.

    ``folder``: the name of its folder, where a view has the table's own.
    """

    name: str
    layer: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    folder: str | None = None

    @property
    def path(self) -> str:
        """The table's place, relative to the lake's root."""
        return f"{self.layer}/{self.folder or self.name}"


def schema_of(*columns: tuple[Any, ...]) -> pa.Schema:
    """A schema of ``(name, type)`` and ``(name, type, REQUIRED)`` columns."""
    return pa.schema([pa.field(name, kind, nullable=not required) for name, kind, *required in columns])


REQUIRED = "required"  # marks a column that must be there
