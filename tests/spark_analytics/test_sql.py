"""Ad-hoc Spark SQL over the views: answers, and refusals in one line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from lake.errors import UserError
from lake.finished import AGE_STATE
from lake.histogram import merge, quantile
from lake.store import Lake
from lake.tables import PARTIALS, TABLES
from lake.views import VIEWS
from spark_analytics.results import collect
from spark_analytics.small import SMALL_BYTES, Small, hand_over, schema_of
from spark_analytics.sql import Engine, SqlSession, query
from spark_analytics.views import register
from tests.reference.partials import partials_of
from tests.spark_analytics.events import event
from tests.support.finishing import finish

pytestmark = pytest.mark.spark

AGES = (0.5, 1.0, 2.0, 4.0, 60.0)


@pytest.fixture
def filled(lake: Lake, spark: SparkSession) -> Path:
    """A lake with a few first attempts, over several seconds; the shared session answers."""
    events = [event("received", age, attempt=1, message_id=f"m{number}") for number, age in enumerate(AGES)]
    lake.append("partials", pa.Table.from_pylist(partials_of(events), PARTIALS.schema))
    finish(lake.root)
    return lake.root


def test_every_table_and_view_is_there_with_its_columns(filled: Path, spark: SparkSession) -> None:
    register(spark, Lake(filled))
    for name, spec in TABLES.items():
        assert spark.table(name).columns == spec.schema.names
    small = Small(Lake(filled))
    for name, view in VIEWS.items():
        if view.public:
            declared = schema_of(view)
            assert spark.table(name).schema.simpleString() == from_arrow_schema(declared).simpleString(), name
            assert small.serves(name)
            assert small.rows(name).schema.equals(declared), name


def test_an_empty_lake_answers_with_no_rows_whatever_is_asked(lake: Lake, spark: SparkSession) -> None:
    for name in ("attempt_age", "attempt_age_now", "queue_health_now", "actions"):
        rows = Small(lake).rows(name)
        hand_over(spark, name, pa.Table.from_batches([], rows.schema))
        assert spark.sql(f"SELECT * FROM {name}").toArrow().num_rows == 0


def test_a_query_sees_what_was_appended_since_the_last(filled: Path) -> None:
    count = "SELECT count(*) AS n FROM partials"
    [before] = query(filled, count).to_pylist()
    more = partials_of([event("enqueued", 100.0)])
    Lake(filled).append("partials", pa.Table.from_pylist(more, PARTIALS.schema))
    [after] = query(filled, count).to_pylist()
    assert after["n"] == before["n"] + 1


def test_quantiles_over_many_rows_are_those_of_the_merged_histogram(filled: Path) -> None:
    columns = "first_attempt_age_histogram AS histogram"
    rows = query(filled, f"SELECT {columns} FROM partials").to_pylist()
    merged = merge({cell["index"]: cell["count"] for cell in row["histogram"] or ()} for row in rows)
    for q in (0.0, 0.5, 0.9, 1.0):
        sql = f"SELECT histogram_quantile(histogram_merge(histogram), {q}) AS v FROM (SELECT {columns} FROM partials)"
        assert query(filled, sql).to_pylist() == [{"v": pytest.approx(quantile(merged, q))}]


def test_quantiles_can_be_grouped_and_an_empty_histogram_has_none(filled: Path) -> None:
    sql = """
        SELECT broker, histogram_quantile(histogram_merge(first_attempt_age_histogram), 0.5) AS some,
               histogram_quantile(histogram_merge(retry_age_histogram), 0.5) AS none
        FROM partials GROUP BY broker HAVING count(*) > 0 ORDER BY broker
    """
    assert query(filled, sql).to_pylist() == [{"broker": "nats", "some": pytest.approx(2.0, rel=0.006), "none": None}]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM tenant_backlo", "did you mean tenant_backlog"),
        ("SELECT nope FROM partials", "nope"),
        ("SELECT 1 / 0 AS x FROM partials", "(?i)zero"),
        ("DROP TABLE partials", "only SELECT"),
        ("SELECT conut(broker) FROM partials", "did you mean count"),
        ("SELECT sqrt(broker, 1) FROM partials", "the query failed"),
    ],
)
def test_a_mistake_is_told_in_one_line(filled: Path, sql: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        query(filled, sql)
    assert "\n" not in str(caught.value)


def test_a_large_result_waits_in_a_file_and_comes_out_in_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    frame = spark.range(0, 50_000, 1, 4).selectExpr("id", "CAST(id AS STRING) AS name").orderBy("id")
    result = collect(frame, held_bytes=1000)
    assert result.rows == 50_000
    assert [path.suffix for path in tmp_path.glob("sojourn-sql-*")] == [".arrow"]
    assert result.table().column("id").to_pylist() == list(range(50_000))
    assert list(tmp_path.glob("sojourn-sql-*")) == []
    assert collect(frame.limit(0)).table().schema.names == ["id", "name"]


def test_what_is_large_is_left_to_spark_but_not_the_newest_rows(filled: Path) -> None:
    lake = Lake(filled)
    for name in ("partials", AGE_STATE.name):
        lake.path(name).joinpath("large.parquet").write_bytes(b"")
        os.truncate(lake.path(name) / "large.parquet", SMALL_BYTES + 1)
    small = Small(lake)
    assert [small.serves(name) for name in ("partials", "attempt_age", "attempt_age_now")] == [False, False, True]
    assert small.serves("message_events")
    assert not small.serves("stage_epochs")
    session = SqlSession(lake)
    assert session.answer(
        "SELECT sum(count) AS n FROM attempt_age WHERE kind = 'first_attempt'"
    ).table().to_pylist() == [{"n": len(AGES)}]
    session.close()


def test_where_spark_runs_already_no_other_java_is_begun(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr("spark_analytics.sql.begin", lambda **chosen: begun.append(chosen))
    assert query(filled, "SELECT count(*) AS n FROM partials").num_rows == 1
    assert begun == []


def test_both_engines_give_the_same_rows(filled: Path) -> None:
    answers = []
    for engine in (Engine.AUTO, Engine.SPARK):
        session = SqlSession(Lake(filled), engine=engine)
        answers.append(session.answer("SELECT * FROM attempt_age ORDER BY bucket_start, kind").table())
        session.close()
    assert answers[0].num_rows > 0
    assert answers[0].to_pylist() == answers[1].to_pylist()
