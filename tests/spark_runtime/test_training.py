"""What the archive of Java's classes is made from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_analytics.runtime.training import ORDINARY, ordinary_lake
from spark_analytics.sql import Engine, SqlSession


@pytest.mark.spark
def test_the_ordinary_statements_have_rows_in_the_ordinary_lake(tmp_path: Path, spark: SparkSession) -> None:
    lake = ordinary_lake(tmp_path / "lake")
    for engine in (Engine.AUTO, Engine.SPARK):
        sql_session = SqlSession(lake, engine=engine)
        told = [sql_session.answer(sql).table().num_rows for sql in ORDINARY[:3]]
        assert told[0] > 0 and told[2] > 0  # of one message that came and went, nothing waits
        sql_session.close()
