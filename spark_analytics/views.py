"""The lake's tables and views inside a Spark session, under their public names."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lake.dataset import rows_of
from lake.definitions import Definitions
from lake.remote import spark_name
from lake.state.stages import HELD, NEWEST, PAST, STAGES, table_of, tables_of_stage
from lake.store import Lake
from lake.tables import AGE_STATE, QUEUE_STATE, TABLES
from lake.views import VIEWS, below, render
from spark_analytics.histograms import QUANTILE_FUNCTION
from spark_analytics.moment import NOT_YET, Moment


def register(session: SparkSession, lake: Lake, names: set[str] | None = None, *, moment: Moment | None = None) -> None:
    """Make ``names`` (default: every table and view of the lake), and what they rest on, queryable in ``session``.

    Tables are temporary views over the Delta files at their newest version, or as they were at ``moment``; nothing is
    written anywhere.
    """
    definitions = Definitions.load(lake.root)
    wanted = {*TABLES, *VIEWS} if names is None else names
    stages = finished_stages(lake, moment).intersection(below(wanted, STAGES)[1])
    tables, views = below(wanted, stages)
    held = frozenset().union(*map(tables_of_stage, stages))
    for name in {*tables, *map(table_of, held), *([QUEUE_STATE.name] if held else ())}:
        _table(session, lake, name, moment).createOrReplaceTempView(name)
    for name in held:
        told = session.sql(render({**NEWEST, **PAST}[name], definitions))
        (told if name in PAST else told.localCheckpoint()).createOrReplaceTempView(name)
    for name in views:
        view = STAGES[name] if name in stages else VIEWS[name]
        rows = session.sql(at_moment(render(view, definitions), moment))
        # Stages build on one another many levels deep. Each is worked out once: expanded in every view above it, a
        # plan would grow by powers, and planning would take minutes.
        whole = not VIEWS[name].public and not (name in stages and tables_of_stage(name) & PAST.keys())
        (rows.localCheckpoint() if whole else rows).createOrReplaceTempView(name)
    register_functions(session)


def finished_stages(lake: Lake, moment: Moment | None = None) -> set[str]:
    """The stages that finished state tells, so that nothing below them has to be worked out."""
    epochs = {held: _newest_epoch(lake, table_of(held), moment) for held in HELD}
    newest = epochs["queue_state_now"]
    if newest is None:
        return set()
    there = {held for held, epoch in epochs.items() if epoch == newest or held == "tenant_state_now"}
    for past in PAST:
        name = AGE_STATE.name if table_of(past) == AGE_STATE.name else QUEUE_STATE.name
        if epochs[f"{name}_now"] == newest and _tells_history(lake, name, newest, moment):
            there.add(past)
    return {name for name in STAGES if tables_of_stage(name) <= there}


def _tells_history(lake: Lake, name: str, epoch: int, moment: Moment | None) -> bool:
    """See :meth:`lake.state.State.tells_history`; ``epoch``: the newest."""
    table = _table_at(lake, name, moment)
    if table is None or "happened" not in (field.name for field in table.schema().fields):
        return False
    rows = rows_of(table, ["happened"], (("epoch", "=", epoch),))
    return bool(rows.column("happened").null_count < rows.num_rows)


def _table_at(lake: Lake, name: str, moment: Moment | None) -> DeltaTable | None:
    """Table ``name`` as it is, or was at ``moment``; None where it was not there yet."""
    table = lake.ensure(name)
    if moment is not None:
        if (version := moment.version(lake, name)) == NOT_YET:
            return None
        table.load_as_version(version)
    return table


def _newest_epoch(lake: Lake, name: str, moment: Moment | None) -> int | None:
    """The newest epoch of a table of finished state, by the bounds that its log tells; None where it has no rows."""
    table = _table_at(lake, name, moment)
    if table is None:
        return None
    files = pa.table(table.get_add_actions(flatten=True))
    if files.num_rows == 0 or "max.epoch" not in files.column_names:
        return None
    newest: int | None = pc.max(files.column("max.epoch")).as_py()
    return newest


def register_functions(session: SparkSession) -> None:
    """Make ``histogram_quantile`` known to ``session``."""
    if not session.catalog.functionExists("histogram_quantile"):
        session.sql(QUANTILE_FUNCTION)


def at_moment(sql: str, moment: Moment | None) -> str:
    """The ``sql`` of a view, with the clock standing at ``moment``."""
    if moment is None:
        return sql
    return sql.replace("current_timestamp()", f"TIMESTAMP '{moment.at.isoformat(sep=' ')}'")


def _table(session: SparkSession, lake: Lake, name: str, moment: Moment | None) -> DataFrame:
    reader = session.read.format("delta")
    schema = from_arrow_schema(TABLES[name].schema)
    if moment is not None:
        version = moment.version(lake, name)
        if version == NOT_YET:
            return session.createDataFrame([], schema)
        reader = reader.option("versionAsOf", version)
    rows = reader.load(spark_name(lake.path(name)))
    # Columns that were added to the table later.
    lacking = [
        F.lit(None).cast(column.dataType).alias(column.name) for column in schema if column.name not in rows.columns
    ]
    return rows.select("*", *lacking).select(schema.names) if lacking or moment is not None else rows
