"""The lake's tables and views inside a Spark session, under their public names."""

from __future__ import annotations

import sqlglot
from pyspark.sql import SparkSession

from lake.definitions import Definitions
from lake.select import tables_of
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS, render
from spark_analytics.histograms import QUANTILE_FUNCTION


def register(session: SparkSession, lake: Lake, names: set[str] | None = None) -> None:
    """Make ``names`` (default: every table and view of the lake), and what they rest on, queryable in ``session``.

    Tables are temporary views over the Delta files at their newest version; nothing is written anywhere.
    """
    definitions = Definitions.load(lake.root)
    wanted = _with_what_they_rest_on(set(TABLES) | set(VIEWS) if names is None else names)
    for name in TABLES:
        if name in wanted:
            session.read.format("delta").load(str(lake.path(name))).createOrReplaceTempView(name)
    for name, view in VIEWS.items():  # in the order in which they build on one another
        if name in wanted:
            session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {render(view, definitions)}")
    if not session.catalog.functionExists("histogram_quantile"):
        session.sql(QUANTILE_FUNCTION)


def _with_what_they_rest_on(names: set[str]) -> set[str]:
    found: set[str] = set()
    pending = set(names)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        if name in VIEWS:
            pending |= tables_of(sqlglot.parse_one(render(VIEWS[name], Definitions()), read="spark"))
    return found
