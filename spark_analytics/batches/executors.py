"""A large micro-batch: computed by Spark's executors, and written by them; nothing of it comes to the driver."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from lake.store import MOST_TRIES
from lake.tables import TABLES
from spark_analytics.batches.flows import FLOWS, Flow
from spark_analytics.batches.read import put_together
from spark_analytics.batches.tenants import folded

log = logging.getLogger(__name__)

Batches = Iterator[pa.RecordBatch]
#: The tenants that are told apart, sent to each executor once; None: all are.
Kept = Broadcast[frozenset[str]] | None

#: What Delta says where another commit, as one that sets properties, came between: appending depends on neither.
_CONFLICT = re.compile(r"DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)")


def append_by_executors(
    flow: Flow, batch: DataFrame, place: Callable[[str], Path], app_id: str, version: int, kept: Kept = None
) -> int:
    """Compute ``batch`` and append its rows to the tables at ``place``; the number of records in it.

    Its attempts are numbered, and all tenants but those ``kept`` are counted together.
    A table that holds ``version`` of ``app_id`` already is left alone. The last of ``flow.writes`` is written last.
    """
    output = pa.schema([pa.field(table, pa.struct(list(TABLES[table].schema))) for table in flow.writes])
    # A function of a module with its argument travels to executors by name: they have Sojourn installed.
    rows = batch.mapInArrow(partial(_compute, flow.name, kept), from_arrow_schema(output)).persist()
    try:
        for table in flow.writes:
            _append(rows.where(f"{table} IS NOT NULL").select(f"{table}.*"), place(table), app_id, version)
        return int(rows.selectExpr(f"coalesce(sum({flow.records_sql}), 0)").first()[0])  # type: ignore[index]
    finally:
        rows.unpersist()


def _append(rows: DataFrame, place: Path, app_id: str, version: int) -> None:
    """Append by Spark's own writer, whose tasks write the files and whose commit carries ``app_id`` and ``version``."""
    writer = rows.write.format("delta").option("txnAppId", app_id).option("txnVersion", version).mode("append")
    for tries_left in reversed(range(MOST_TRIES)):
        try:
            return writer.save(str(place))
        except Exception as error:
            if not tries_left or not _CONFLICT.search(str(error)):
                raise
            log.info("%s was changed meanwhile: appending again", place.name)


def _compute(flow: str, kept: Kept, batches: Batches) -> Batches:
    """What an executor does with its share."""
    chosen = FLOWS[flow]
    # Spark makes small batches.
    for piece in put_together(pa.Table.from_batches([batch]) for batch in batches):
        bounded = piece if kept is None else folded(piece, kept.value)
        for table, rows in chosen.compute(bounded).items():
            yield from _tagged(table, rows, chosen.writes)


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
