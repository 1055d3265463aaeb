"""Summaries that collectors made → partials: the same shape, so Spark only adds them up."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lake.tables import PARTIALS


def summary_partials(summaries: DataFrame) -> DataFrame:
    """Rows of ``event_summaries`` → rows of ``partials``, one for each."""
    return summaries.select(*PARTIALS.schema.names)
