"""The lake's tables and views inside a Spark session, under their public names."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lake.definitions import Definitions
from lake.remote import spark_name
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS, below, render
from spark_analytics.histograms import QUANTILE_FUNCTION
from spark_analytics.moment import NOT_YET, Moment


def register(session: SparkSession, lake: Lake, names: set[str] | None = None, *, moment: Moment | None = None) -> None:
    """Make ``names`` (default: every table and view of the lake), and what they rest on, queryable in ``session``.

    Tables are temporary views over the Delta files at their newest version, or as they were at ``moment``; nothing is
    written anywhere.
    """
    definitions = Definitions.load(lake.root)
    tables, views = below({*TABLES, *VIEWS} if names is None else names)
    for name in tables:
        _table(session, lake, name, moment).createOrReplaceTempView(name)
    for name in views:
        rows = session.sql(at_moment(render(VIEWS[name], definitions), moment))
        # Stages build on one another many levels deep. Each is worked out once: expanded in every view above it, a
        # plan would grow by powers, and planning would take minutes.
        (rows if VIEWS[name].public else rows.localCheckpoint()).createOrReplaceTempView(name)
    register_functions(session)


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
