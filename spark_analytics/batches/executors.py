"""A large micro-batch: computed by Spark's executors, and written by them; nothing of it comes to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from lake.tables import TABLES
from spark_analytics.batches.flows import FLOWS, Flow
from spark_analytics.batches.read import PIECE_ROWS

Batches = Iterator[pa.RecordBatch]


def append_by_executors(flow: Flow, batch: DataFrame, place: Callable[[str], Path], app_id: str, version: int) -> int:
    """Compute ``batch`` and append its rows to the tables at ``place``; the number of records in it.

    A table that holds ``version`` of ``app_id`` already is left alone. The last of ``flow.writes`` is written last.
    """
    output = pa.schema([pa.field(table, pa.struct(list(TABLES[table].schema))) for table in flow.writes])
    rows = batch.mapInArrow(_task(flow.name), from_arrow_schema(output)).persist()
    try:
        for table in flow.writes:
            (
                rows.where(f"{table} IS NOT NULL")
                .select(f"{table}.*")
                .write.format("delta")
                .option("txnAppId", app_id)
                .option("txnVersion", version)
                .mode("append")
                .save(str(place(table)))
            )
        return int(rows.selectExpr(f"coalesce(sum({flow.records_sql}), 0)").first()[0])  # type: ignore[index]
    finally:
        rows.unpersist()


def _task(flow: str) -> Callable[[Batches], Batches]:
    """What an executor does with its share; it knows the flow by name, as functions of packages travel."""

    def run(batches: Batches) -> Batches:
        chosen = FLOWS[flow]
        for piece in _pieces(batches):
            for table, rows in chosen.compute(piece).items():
                yield from _tagged(table, rows, chosen.writes)

    return run


def _pieces(batches: Batches) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= PIECE_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _tagged(table: str, rows: pa.Table, tables: tuple[str, ...]) -> Batches:
    """Rows of one table as rows that have a place for each table: one pass over the batch serves all."""
    for batch in rows.to_batches():
        columns = [
            pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            if name == table
            else pa.nulls(batch.num_rows, pa.struct(list(TABLES[name].schema)))
            for name in tables
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(tables))
