"""sqlglot, which checks, and Spark, which runs, read a statement alike, or it is refused."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from lake.errors import UserError
from spark_analytics.functions import duckdb_catalogue, gone, spark_catalogue, unjudged
from spark_analytics.plans import check_plan

NAMES = {"t"}


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        "SELECT reflect('a', 'b')",
        "SELECT `reflect`('a', 'b')",
        "SELECT a FROM text.`/etc/passwd`",
        "SELECT a FROM u",
        "SELECT TRANSFORM(a) USING 'cat' FROM t",
        "WITH w AS (SELECT java_method('a', 'b')) SELECT * FROM w",
        "SELECT (SELECT reflect('a', 'b'))",
        "SELECT a FROM t, LATERAL (SELECT reflect('a', 'b'))",
        "SELECT sum(1) OVER (PARTITION BY reflect('a', 'b'))",
        "SELECT count(1) FILTER (WHERE reflect('a', 'b') IS NULL)",
        "SELECT 1 GROUP BY GROUPING SETS ((reflect('a', 'b')))",
        "SELECT * FROM VALUES (reflect('a', 'b')) AS v(x)",
        "SELECT * FROM t LATERAL VIEW explode(array(reflect('a', 'b'))) e AS x",
        "SELECT * FROM python_worker_logs()",
        "SELECT a FROM t WHERE a IN (SELECT reflect('a', 'b'))",
        "SELECT a FROM t SORT BY reflect('a', 'b')",
        "SELECT IDENTIFIER('reflect')('a', 'b')",
        "SELECT /*+ REPARTITION(3) */ a FROM t",
        "SELECT :x",
        "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT 1",
        "SET x = 1",
        "DROP VIEW t",
    ],
)
def test_the_second_look_alone_refuses(spark: SparkSession, text: str) -> None:
    with pytest.raises((UserError, ParseException)):
        check_plan(spark, text, NAMES)


@pytest.mark.spark
def test_every_function_of_spark_was_judged(spark: SparkSession) -> None:
    catalogue = spark_catalogue(spark)
    assert len(catalogue) > 500
    assert unjudged("spark", catalogue) == [], "judge them in lake/sql/functions.toml"
    assert gone("spark", catalogue) == []


def test_every_function_of_duckdb_was_judged() -> None:
    catalogue = duckdb_catalogue()
    assert len(catalogue) > 800
    assert unjudged("duckdb", catalogue) == [], "judge them in lake/sql/functions.toml"
    assert gone("duckdb", catalogue) == []
