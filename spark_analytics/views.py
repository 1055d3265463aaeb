"""The lake's tables and views inside a Spark session, under their public names."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lake.definitions import Definitions
from lake.store import Lake
from lake.tables import TABLES
from lake.views import VIEWS, below, render
from spark_analytics.histograms import QUANTILE_FUNCTION


def register(session: SparkSession, lake: Lake, names: set[str] | None = None) -> None:
    """Make ``names`` (default: every table and view of the lake), and what they rest on, queryable in ``session``.

    Tables are temporary views over the Delta files at their newest version; nothing is written anywhere.
    """
    definitions = Definitions.load(lake.root)
    tables, views = below({*TABLES, *VIEWS} if names is None else names)
    for name in tables:
        session.read.format("delta").load(str(lake.path(name))).createOrReplaceTempView(name)
    for name in views:
        rows = session.sql(render(VIEWS[name], definitions))
        # Stages build on one another many levels deep. Each is worked out once: expanded in every view above it, a
        # plan would grow by powers, and planning would take minutes.
        (rows if VIEWS[name].public else rows.localCheckpoint()).createOrReplaceTempView(name)
    if not session.catalog.functionExists("histogram_quantile"):
        session.sql(QUANTILE_FUNCTION)
