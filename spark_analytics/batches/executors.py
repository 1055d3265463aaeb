"""A large micro-batch: computed by Spark's executors, and written by them; nothing of it comes to the driver."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from lake.making import indexed
from lake.remote import Location, Remote, store_of
from lake.staged import LaidDown, Staged
from lake.store import MOST_TRIES
from lake.tables import TABLES
from spark_analytics.batches.flows import FLOWS, Flow
from spark_analytics.batches.read import put_together
from spark_analytics.batches.tenants import folded
from spark_analytics.gold import Gold

log = logging.getLogger(__name__)

#: What a task tells of a file that it laid down; without a path: how many records it read.
_TOLD = pa.schema(
    {
        "table": pa.string(),
        "path": pa.string(),
        "size": pa.int64(),
        "changed": pa.int64(),
        "stats": pa.string(),
        "records": pa.int64(),
    }
)

Batches = Iterator[pa.RecordBatch]
#: The tenants that are told apart, sent to each executor once; None: all are.
Kept = Broadcast[frozenset[str]] | None

#: What Delta says where another commit, as one that sets properties, came between: appending depends on neither.
_CONFLICT = re.compile(r"DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)")


def append_by_executors(
    flow: Flow, batch: DataFrame, place: Callable[[str], Location], app_id: str, version: int, kept: Kept = None
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


def add_from_executors(flow: Flow, batch: DataFrame, gold: Gold, version: int, kept: Kept = None) -> int:
    """As :func:`append_by_executors`, over an object store: tasks lay down files, and one commit of ours adds them.

    Spark's own commit there would be safe beside no other writer: docs/adr/0015. Files of a task that was tried twice,
    of which the second is counted, are orphans, which vacuuming removes.
    """
    missing = gold.missing(version)
    places = {name: place for name in missing if isinstance(place := gold.path(name), Remote)}
    stores = {name: (place.store.url, place.store.options, place.key) for name, place in places.items()}
    told = batch.mapInArrow(partial(_lay_down, flow.name, kept, stores), from_arrow_schema(_TOLD)).toArrow().to_pylist()
    gold.add(version, {name: LaidDown(place, _adds(told, name)) for name, place in places.items()})
    return sum(one["records"] for one in told if one["path"] is None)


def _adds(told: Sequence[Mapping[str, Any]], name: str) -> list[AddAction]:
    mine = [one for one in told if one["table"] == name and one["path"] is not None]
    return [AddAction(one["path"], one["size"], {}, one["changed"], True, one["stats"]) for one in mine]


def _lay_down(
    flow: str, kept: Kept, stores: Mapping[str, tuple[str, Mapping[str, str], str]], batches: Batches
) -> Batches:
    """What an executor does with its share where the tables are in an object store; yields what it laid down."""
    chosen, records = FLOWS[flow], 0
    staged = {
        name: Staged(Remote(store_of(url, options), key), TABLES[name].schema, indexed(TABLES[name]))
        for name, (url, options, key) in stores.items()
    }
    for piece in put_together(pa.Table.from_batches([batch]) for batch in batches):
        records += piece.num_rows
        for table, rows in chosen.compute(piece if kept is None else folded(piece, kept.value)).items():
            if table in staged:
                staged[table].append(rows)
    told = [
        {"table": name, "path": add.path, "size": add.size, "changed": add.modification_time, "stats": add.stats}
        for name, file in staged.items()
        for add in file.finished()
    ]
    yield pa.RecordBatch.from_pylist([*told, {"table": flow, "records": records}], schema=_TOLD)


def _append(rows: DataFrame, place: Location, app_id: str, version: int) -> None:
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
