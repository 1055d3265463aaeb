"""The events of a large batch whose attempts nobody numbered, numbered in the order of their arrival.

Numbering needs that order, and memory of other batches: it is the driver's, for executors' batches too. Executors bring
those events alone into their order, in files beside the notes; the driver reads them piece by piece, as it reads small
batches, and writes them with their numbers. Of sources that number their attempts there are none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType, StructField, StructType

from spark_analytics.batches.attempts import UNNUMBERED_SQL, Attempts
from spark_analytics.batches.files import Files, below_scheme
from spark_analytics.batches.read import pieces

#: Where a row stood: the place of its file in the batch, the place of its split in the file, and its own in that.
_PLACE = ("file", "split", "row")


@contextmanager
def numbered(batch: DataFrame, files: Files | None, attempts: Attempts, schema: pa.Schema) -> Iterator[DataFrame]:
    """``batch`` (of ``schema``) with the attempts that nobody numbered, as if its rows had come to the driver.

    Without ``files`` nothing tells their order, and that in which events occurred stands for it. ``attempts`` have
    begun with the batch; they are the caller's to keep before its rows are in gold.
    """
    if batch.where(UNNUMBERED_SQL).isEmpty():
        yield batch
        return
    attempts.folder.mkdir(parents=True, exist_ok=True)
    arrived, told = attempts.folder / "arrived", attempts.folder / "numbered.parquet"
    try:
        _in_order(batch.where(UNNUMBERED_SQL), files).write.mode("overwrite").parquet(str(arrived))
        with pq.ParquetWriter(told, schema) as writer:
            for piece in pieces(sorted(arrived.glob("part-*.parquet")), schema):
                writer.write_table(attempts.numbered(piece))
        rest = batch.where(f"NOT {UNNUMBERED_SQL}")
        yield rest.unionByName(batch.sparkSession.read.parquet(str(told)))
    finally:
        shutil.rmtree(arrived, ignore_errors=True)
        told.unlink(missing_ok=True)


def _in_order(rows: DataFrame, files: Files | None) -> DataFrame:
    """``rows`` in the order in which the driver would read them."""
    if files is None:
        return rows.repartition(1).sortWithinPartitions("occurred_at")
    read = rows.select(
        "*",
        sql.input_file_block_start().alias("split"),
        sql.monotonically_increasing_id().alias("row"),
        sql.input_file_name().alias("file"),
    )
    places = {below_scheme(uri): place for place, uri in enumerate(files.uris)}
    schema = StructType([*read.schema.fields[:-1], StructField("file", LongType())])
    return read.mapInArrow(partial(_placed, places), schema).repartition(1).sortWithinPartitions(*_PLACE).drop(*_PLACE)


def _placed(places: dict[str, int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row's file, which Spark names as a URI, as its place."""
    for batch in batches:
        files = batch.column("file").dictionary_encode()
        numbers = pa.array([places[below_scheme(unquote(name))] for name in files.dictionary.to_pylist()], pa.int64())
        yield batch.drop_columns(["file"]).append_column("file", numbers.take(files.indices))
