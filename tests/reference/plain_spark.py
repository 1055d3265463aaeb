"""What somebody has who has pyspark, Delta's jars and none of our code: answers to statements, as files."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

OURS = ("lake", "spark_analytics", "sojourn", "tests")


def main(jars: str, statements: str, answers: str) -> None:
    """Run each of ``statements``, by the name of the file in the folder ``answers`` that it is for."""
    assert not [name for name in OURS if find_spec(name)], "somebody's code is ours"
    builder = SparkSession.builder.master("local[1]").config("spark.driver.extraClassPath", jars)
    for key, value in {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.session.timeZone": "UTC",
        # For few rows: 50 tasks for each table's log, and code for each plan, are most of the time otherwise.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for name, sql in json.loads(statements).items():
        table = spark.sql(sql).toArrow()
        with pa.OSFile(str(Path(answers) / name), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
