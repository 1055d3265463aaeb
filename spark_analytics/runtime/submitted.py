"""The Spark session of a process that ``spark-submit`` started: its Java, master, jars and settings are given."""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from lake.errors import SojournError, UserError, first_line
from spark_analytics.runtime.options import cluster_settings

_DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def join_submitted(app_name: str, conf: Mapping[str, str]) -> SparkSession:
    """The session, with our settings and ``conf`` where ``spark-submit`` was not told otherwise."""
    SparkContext._ensure_initialized()
    given = dict(SparkConf().getAll())
    try:
        loader = SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
        loader.loadClass(_DELTA)
    except Py4JError:
        raise UserError(
            "spark-submit was not given Delta's jars",
            'spark-submit --jars "$(python -m spark_analytics.runtime --print-jars)" …',
        ) from None
    builder = SparkSession.builder.appName(given.get("spark.app.name", app_name))
    for key, value in (cluster_settings() | dict(conf)).items():
        if key not in given:
            builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise SojournError(f"Spark does not start: {first_line(error)}") from error
