"""The lake's tables and views inside a Spark session, under their public names."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lake.definitions import Definitions
from lake.errors import UserError
from lake.finished import QUEUE_STATE
from lake.remote import spark_name
from lake.state import rests_on_state
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS, below, render
from lake.views.catalogue import HISTORY
from spark_analytics.histograms import QUANTILE_FUNCTION
from spark_analytics.time_travel import NOT_YET, AsOf

_PAST = frozenset(HISTORY)
#: Delta refuses versions older than replaced files are kept for. Some are retained, and
#: whether the files of one are there is looked up (:meth:`spark_analytics.time_travel.AsOf.version`).
_OLDER_THAN_FILES_ARE_KEPT = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


def register(session: SparkSession, lake: Lake, names: set[str] | None = None, *, as_of: AsOf | None = None) -> None:
    """Make ``names`` (default: every table and view of the lake), and what they rest on, queryable in ``session``.

    Tables are temporary views over the Delta files at their newest version, or as they were at ``as_of``; nothing is
    written anywhere.
    """
    definitions = Definitions.load(lake.root)
    tables, views = below({*TABLES, *VIEWS} if names is None else names)
    if as_of is not None:
        session.conf.set(_OLDER_THAN_FILES_ARE_KEPT, "false")
    for name in tables:
        _table(session, lake, name, as_of).createOrReplaceTempView(name)
    for name in views:
        view = VIEWS[name]
        rows = session.sql(with_clock_at(render(view, definitions), as_of))
        # Stages build on one another. Each is worked out once, rather than again in every view above it; but of
        # history a query mostly wants a part.
        whole = not view.public and _PAST.isdisjoint(below({name})[1])
        (rows.localCheckpoint() if whole else rows).createOrReplaceTempView(name)
    register_functions(session)


def require_finished_at(lake: Lake, names: Iterable[str], as_of: AsOf) -> None:
    """Raises UserError where ``names`` rest on finished state, of which the lake had none at ``as_of``."""
    if rests_on_state(names) and not _is_finished_at(lake, as_of):
        raise UserError(
            f"at {as_of.at:%Y-%m-%dT%H:%M:%SZ} nothing had finished this lake's state yet",
            "name a later time, or ask for `partials`, `marks` or `queue_samples` as they were then",
        )


def _is_finished_at(lake: Lake, as_of: AsOf) -> bool:
    """Whether finished state had any rows at ``as_of``."""
    table, version = lake.ensure(QUEUE_STATE.name), as_of.version(lake, QUEUE_STATE.name)
    if version == NOT_YET:
        return False
    table.load_as_version(version)
    return bool(table.file_uris())


def register_functions(session: SparkSession) -> None:
    """Make ``histogram_quantile`` known to ``session``."""
    if not session.catalog.functionExists("histogram_quantile"):
        session.sql(QUANTILE_FUNCTION)


def with_clock_at(sql: str, as_of: AsOf | None) -> str:
    """The ``sql`` of a view, with the clock standing at ``as_of``."""
    if as_of is None:
        return sql
    return sql.replace("current_timestamp()", f"TIMESTAMP '{as_of.at.isoformat(sep=' ')}'")


def _table(session: SparkSession, lake: Lake, name: str, as_of: AsOf | None) -> DataFrame:
    reader = session.read.format("delta")
    schema = from_arrow_schema(TABLES[name].schema)
    if as_of is not None:
        version = as_of.version(lake, name)
        if version == NOT_YET:
            return session.createDataFrame([], schema)
        reader = reader.option("versionAsOf", version)
    rows = reader.load(spark_name(lake.path(name)))
    # Columns that were added to the table later.
    lacking = [
        F.lit(None).cast(column.dataType).alias(column.name) for column in schema if column.name not in rows.columns
    ]
    return rows.select("*", *lacking).select(schema.names) if lacking or as_of is not None else rows
