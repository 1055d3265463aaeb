"""The rows of a query as they come out of Spark, held in bounded memory whatever their number."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

#: More result than this is laid down in a temporary file.
HELD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Result:
    """Rows in their order; read them once. ``rows`` is their number."""

    schema: pa.Schema
    rows: int
    batches: Iterator[pa.RecordBatch]

    def table(self) -> pa.Table:
        """All rows at once."""
        return pa.Table.from_batches(list(self.batches), self.schema)


def collect(frame: DataFrame, held_bytes: int = HELD_BYTES) -> Result:
    """Run ``frame`` to its end. Spark sends batches as partitions finish, and their order last."""
    schema = to_arrow_schema(frame.schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    spool = _Spool(held_bytes)
    order: list[int] = []
    port, secret, server = frame._jdf.collectAsArrowToPython()
    try:
        with _load_from_socket((port, secret), ArrowCollectSerializer()) as stream:  # type: ignore[no-untyped-call]
            for part in stream:
                if isinstance(part, pa.RecordBatch):
                    spool.add(part)
                else:
                    order = list(part)
    finally:
        with unwrap_spark_exception():
            server.getResult()
    return Result(schema, spool.rows, spool.read(order, schema))


class _Spool:
    """Batches by number: in memory while they are few, in one file when they are many."""

    def __init__(self, held_bytes: int) -> None:
        self._most = held_bytes
        self._bytes = 0
        self._held: list[pa.RecordBatch] = []
        self._path: Path | None = None
        self._writer: pa.RecordBatchFileWriter | None = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self._held.append(batch)
        if self._bytes > self._most:
            with tempfile.NamedTemporaryFile(prefix="sojourn-sql-", suffix=".arrow", delete=False) as file:
                self._path = Path(file.name)
            self._writer = pa.ipc.new_file(str(self._path), batch.schema)
            for held in self._held:
                self._writer.write_batch(held)
            self._held.clear()

    def read(self, order: list[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self._writer is None or self._path is None:
            for number in order:
                yield self._held[number].cast(schema)
            return
        self._writer.close()
        try:
            with pa.memory_map(str(self._path)) as source:
                file = pa.ipc.open_file(source)
                for number in order:
                    yield file.get_batch(number).cast(schema)
        finally:
            with suppress(OSError):
                self._path.unlink()
