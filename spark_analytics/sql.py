"""``sojourn sql``: one read-only Spark SQL query over the lake's tables and views."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lake.errors import UserError
from lake.select import check, tables_of
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS
from spark_analytics.faults import explained, first_line, quieten
from spark_analytics.histograms import spell_out_merges
from spark_analytics.runtime.session import build_session
from spark_analytics.views import register

#: Classes of SQLSTATE that blame the statement: data exception (a division by zero), syntax or unknown name.
QUERY_AT_FAULT = ("22", "42")


def query(lake_root: Path, sql: str) -> pa.Table:
    """The rows of ``sql`` over the lake at ``lake_root``. UserError for what is no such query, in one line."""
    checked = check(sql, {*TABLES, *VIEWS})  # before Spark starts: a slip of the pen answers at once
    lake = Lake(lake_root)
    lake.create()
    session = build_session("sojourn-sql", quick_start=True)
    return run(session, lake, spell_out_merges(checked).sql("spark") if _merges(sql) else sql, tables_of(checked))


def run(session: SparkSession, lake: Lake, sql: str, names: set[str]) -> pa.Table:
    """The rows of ``sql``, which reads ``names``, in a session that is there."""
    quieten(session)
    try:
        register(session, lake, names)
        return session.sql(sql).toArrow()
    except PySparkException as error:
        if (error.getSqlState() or "")[:2] in QUERY_AT_FAULT:
            raise UserError(
                f"the query failed: {first_line(error)}", "docs/views.md lists views and columns"
            ) from error
        raise explained(error) from error


def _merges(sql: str) -> bool:
    return "histogram_merge" in sql.lower()
