"""sqlglot, which checks, and Spark, which runs, read a statement alike, or it is refused."""

from __future__ import annotations

import re

import pytest
import sqlglot
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from sqlglot import exp

from lake.errors import UserError
from lake.select import canonical, check, tables_of
from lake.sql.dialect import Canonical
from lake.sql.lexical import calls
from spark_analytics.functions import duckdb_catalogue, gone, spark_catalogue, unjudged
from spark_analytics.plans import check_plan, understood
from tests.security.fuzz.statements import honest
from tests.security.statements import STATEMENTS
from tests.support.deep import examples

NUMBERS = range(examples(100, 3000))
NAMES = {"t"}
#: Functions and texts that Spark's parser has for what is also syntax: EXTRACT(HOUR FROM …), ARRAY<…>, (1, 2).
IMPLIED = {"extract", "between", "array", "map", "struct", "if", "not", "and", "or", "in", "exists", "div", "like"}
UNITS = {"HOUR", "", "col1", "col2"}


def texts(sql: str) -> set[str]:
    """What Spark may take for a text: texts in quotes, and names, which it gives to fields of structs."""
    nodes = sqlglot.parse_one(sql, read=Canonical).find_all(exp.Literal, exp.Identifier)
    return {node.name for node in nodes if isinstance(node, exp.Identifier) or node.is_string}


def compare(spark: SparkSession, sql: str) -> bool:
    """Hold both readings of ``sql`` against one another; whether there are two: either may refuse it."""
    try:
        text = canonical(sql, NAMES)
    except UserError:
        return False
    try:
        found = understood(spark, text)
    except ParseException:
        return False
    named = {f"[{name}]" for name in tables_of(check(sql, NAMES))}
    assert found.relations - found.defined == named, (sql, text)
    called = {name.lower() for name in calls(text, "spark")}
    assert {name[1:-1].lower() for name in found.functions} <= called | IMPLIED, (sql, text)
    assert set(found.texts) <= texts(text) | UNITS, (sql, text)
    check_plan(spark, text, NAMES)
    return True


@pytest.mark.spark
def test_both_parsers_find_the_same_tables_functions_and_texts(spark: SparkSession) -> None:
    alike = sum(compare(spark, honest(1, number, sorted(NAMES))) for number in NUMBERS)
    assert alike > len(NUMBERS) // 4


@pytest.mark.spark
def test_hostile_statements_that_are_understood_are_understood_alike(spark: SparkSession) -> None:
    for _, sql in STATEMENTS:
        compare(spark, re.sub(r"\bpartials\b", "t", sql))


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
