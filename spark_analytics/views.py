"""The lake's tables and views inside a Spark session, under their public names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lake.dataset import rows_of
from lake.definitions import Definitions
from lake.errors import UserError
from lake.remote import spark_name
from lake.state import rests_on_state
from lake.store import Lake
from lake.tables import AGE_STATE, QUEUE_STATE, TABLES
from lake.views import VIEWS, below, render
from lake.views.catalogue import FINISHED_AGES, HISTORY
from spark_analytics.histograms import QUANTILE_FUNCTION
from spark_analytics.moment import NOT_YET, Moment

_PAST = frozenset(HISTORY)
#: Delta refuses versions older than replaced files are kept for. Some are (:mod:`spark_analytics.kept`), and whether
#: the files of one are there is looked up (:meth:`spark_analytics.moment.Moment.version`).
_OLDER_THAN_FILES_ARE_KEPT = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


def register(session: SparkSession, lake: Lake, names: set[str] | None = None, *, moment: Moment | None = None) -> None:
    """Make ``names`` (default: every table and view of the lake), and what they rest on, queryable in ``session``.

    Tables are temporary views over the Delta files at their newest version, or as they were at ``moment``; nothing is
    written anywhere.
    """
    definitions = Definitions.load(lake.root)
    wanted = {*TABLES, *VIEWS} if names is None else names
    given = FINISHED_AGES.keys() & set(below(wanted)[1])
    if given and not _has_ages(lake, moment):
        given = set()
    wanted = {*wanted, *(name.replace("stage_age_rows", "age_state") for name in given)}
    tables, views = below(wanted, given)
    if moment is not None:
        session.conf.set(_OLDER_THAN_FILES_ARE_KEPT, "false")
    for name in tables:
        _table(session, lake, name, moment).createOrReplaceTempView(name)
    for name in views:
        view = FINISHED_AGES[name] if name in given else VIEWS[name]
        rows = session.sql(at_moment(render(view, definitions), moment))
        # Stages build on one another. Each is worked out once, rather than again in every view above it; but of
        # history a query mostly wants a part.
        whole = not view.public and _PAST.isdisjoint(below({name}, given)[1]) and name != "stage_age_rows_past"
        (rows.localCheckpoint() if whole else rows).createOrReplaceTempView(name)
    register_functions(session)


def require_finished_at(lake: Lake, names: Iterable[str], moment: Moment) -> None:
    """Raises UserError where ``names`` rest on finished state, of which the lake had none at ``moment``."""
    if rests_on_state(names) and _newest_epoch(lake, QUEUE_STATE.name, moment) is None:
        raise UserError(
            f"at {moment.at:%Y-%m-%dT%H:%M:%SZ} nothing had finished this lake's state yet",
            "name a later time, or ask for `partials`, `marks` or `queue_samples` as they were then",
        )


def _has_ages(lake: Lake, moment: Moment | None) -> bool:
    """See :attr:`lake.state.State.tells_ages`."""
    epoch = _newest_epoch(lake, QUEUE_STATE.name, moment)
    if epoch is None or _newest_epoch(lake, AGE_STATE.name, moment) != epoch:
        return False
    table = _table_at(lake, AGE_STATE.name, moment)
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
