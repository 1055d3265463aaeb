"""What somebody types into a notebook, with pyspark's own client at the address given; prints the answers as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, functions
from pyspark.sql.connect.client import SparkConnectClient

LARGE = 200_000
#: What statements hold as ``:name``.
HOSTILE = "O'Neill'); DROP VIEW limits; --"
AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
VALUES = {"queue": "orders", "text": HOSTILE, "most": 7, "at": AT}
WITH_VALUES = (
    "SELECT count(*) AS n, :text AS text, :most + 1 AS more, unix_seconds(:at) AS at"
    " FROM queue_health_now WHERE queue = :queue"
)


def main(address: str) -> None:
    """Ask what is allowed, try what is not, and print how each ended."""
    spark: Any = SparkSession.builder.remote(address).getOrCreate()
    health = spark.table("queue_health_now")
    told = {
        "table": [row.queue for row in health.select("queue").collect()],
        "pandas": list(health.toPandas()["queue"]),
        "sql": spark.sql("SELECT count(*) AS n FROM partials").first().n,
        "frame in sql": spark.sql("SELECT count(*) AS n FROM {mine}", mine=health).first().n,
        "parameters": list(spark.sql(WITH_VALUES, args=VALUES).first()),
        "methods": health.where("depth IS NULL").withColumn("twice", functions.expr("1 + 1")).count(),
        "own rows": spark.createDataFrame([(1, "a")], "n INT, s STRING").count(),
        "many own rows": spark.createDataFrame([("x" * 20,)] * LARGE, "s STRING").count(),
        "tables": sorted(table.name for table in spark.catalog.listTables()),
        "quantile": spark.sql("SELECT histogram_quantile(flatten(collect_list(histogram)), 0.5) AS p FROM attempt_age")
        .first()
        .p,
        "secrets": sorted(key for key in spark.conf.getAll if "token" in key.lower() or key == "spark.master"),
        "alias": health.alias("text.`/etc/passwd`").count(),
        "mistake": _refusal(lambda: spark.sql("SELECT nothing FROM partials").collect()),
    }
    attempts: dict[str, Callable[[], Any]] = {
        "python": lambda: health.select(functions.udf(lambda x: x)("queue")).collect(),
        "files": lambda: spark.read.text("/etc/passwd").collect(),
        "files by name": lambda: spark.sql("SELECT * FROM text.`/etc/passwd`").collect(),
        "parameters without names": lambda: spark.sql("SELECT ?", args=[1]).collect(),
        "a parameter that is no value": lambda: spark.sql("SELECT :x", args={"x": functions.array()}).collect(),
        "write": lambda: health.write.parquet("/tmp/sojourn-never"),
        "insert": lambda: spark.sql("INSERT INTO partials SELECT * FROM partials"),
        "drop": lambda: spark.sql("DROP VIEW limits"),
        "catalogue": lambda: spark.catalog.dropTempView("limits"),
        "setting": lambda: spark.conf.set("spark.sql.catalog.mine", "org.example.Catalog"),
        "token": lambda: spark.conf.get("spark.connect.authenticate.token"),
        "token or nothing": lambda: spark.conf.get("spark.connect.authenticate.token", "nothing"),
        "alias of a file": lambda: health.alias("text.`/etc/passwd`").join(spark.table("text.`/etc/passwd`")).count(),
        "view": lambda: health.createOrReplaceTempView("mine"),
        "option": lambda: spark.read.option("path", "/etc/passwd").table("partials").collect(),
        "class": lambda: spark.createDataFrame([], '{"type": "udt", "class": "java.util.Random"}').count(),
        "artifact": lambda: spark.addArtifacts(__file__, file=True),
        "code": lambda: health.selectExpr("reflect('java.lang.System', 'exit', 0)").collect(),
        "command": lambda: spark.sql("SELECT TRANSFORM(queue) USING 'cat' AS (line) FROM partials").collect(),
    }
    refused = {name: _refusal(attempt) for name, attempt in attempts.items()}
    print(json.dumps({"told": told, "refused": refused, "written": Path("/tmp/sojourn-never").exists()}))
    client: SparkConnectClient = spark.client
    client.close()


def _refusal(attempt: Callable[[], Any]) -> str | None:
    try:
        attempt()
    except Exception as error:
        return str(error)
    return None


if __name__ == "__main__":
    main(sys.argv[1])
