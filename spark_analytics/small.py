"""Tables and views that are small or quickly read, worked out without Spark and handed to it as Arrow.

Spark takes seconds to load its Delta classes, to replay a table's log and to plan the deep stages of a view for the
first time. The JVM-free reader has the same rows (a contract test holds it to that) in milliseconds; what a statement
asks of them is then Spark's to answer.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from lake.reader import Reader
from lake.remote import entries
from lake.schema import HISTOGRAM, LABELS, TIMESTAMP
from lake.snapshot import Snapshot
from lake.store import Lake, conform
from lake.tables import TABLES
from lake.views import VIEWS, below
from lake.views.model import View
from spark_analytics.time_travel import AsOf

#: A table or a history view that rests on more Parquet than this is Spark's; the ``_now`` views are always served by
#: the reader, which answers the dashboard with them every second.
SMALL_BYTES = 32 * 1024 * 1024

_TYPES = {
    "STRING": pa.string(),
    "TIMESTAMP": TIMESTAMP,
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "MAP<STRING, STRING>": LABELS,
    "ARRAY<STRUCT<index: INT, count: BIGINT>>": HISTOGRAM,
}


class Small:
    """The small tables and views of a lake, newest or as they were at ``as_of``. One thread at a time."""

    def __init__(self, lake: Lake, as_of: AsOf | None = None) -> None:
        self._lake = lake
        self._as_of = as_of
        self._reader: Reader | None = None

    def serves(self, name: str) -> bool:
        """Whether table or view ``name`` is had without Spark."""
        if self._as_of is not None or (name in VIEWS and not VIEWS[name].public):
            return False
        if name.endswith("_now"):
            return True
        left = SMALL_BYTES
        for table in below({name})[0]:
            # Files of older versions included: no more than a hint, and soon found for a lake of many files.
            for _, about in entries(self._lake.path(table), ".parquet", recursive=True):
                left -= about.st_size
                if left < 0:
                    return False
        return True

    def rows(self, name: str) -> pa.Table:
        """All rows of ``name``, in the types that are declared; errors as of :class:`lake.reader.Reader`."""
        if name in TABLES:
            scannable, _ = Snapshot(TABLES[name], self._lake.root).current(None)
            rows = scannable if isinstance(scannable, pa.Table) else scannable.to_table()
            return conform(rows, TABLES[name].schema)
        self._reader = self._reader or Reader(self._lake.root)
        return self._reader.query(f"SELECT * FROM {name}").cast(schema_of(VIEWS[name]))

    def token(self, name: str) -> tuple[int, ...] | None:
        """Equal tokens, equal rows; None where rows depend on the clock as well."""
        if name == "limits":
            return None
        self._reader = self._reader or Reader(self._lake.root)
        return self._reader.token(*below({name})[0])


def schema_of(view: View) -> pa.Schema:
    """The Arrow schema of a public view, from its declared columns."""
    return pa.schema([pa.field(column.name, _TYPES[column.type]) for column in view.columns])


def hand_over(session: SparkSession, name: str, rows: pa.Table) -> None:
    """Make ``rows`` known to ``session`` as ``name``."""
    if rows.num_rows == 0:  # pyspark cannot take a nested column of no chunks at all
        rows = pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=rows.schema)])
    session.createDataFrame(rows, from_arrow_schema(rows.schema)).createOrReplaceTempView(name)
