"""The finished tables as polars reads them over plain deltalake, and as a plain PySpark does.

By what docs/state.md says, and without any of our code.

Every row of the present, of history and of ages is what the reference counts, late rows and restarts included.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from spark_analytics.runtime.jars import ensure_jars
from spark_analytics.runtime.java import ensure_java, java_home
from spark_analytics.state.writer import Writer
from tests.reference.compare import differences, expected_rows
from tests.reference.generate import Row, generate
from tests.reference.replaying import AGING, HISTORY, NAMES, PRESENT, TABLE_OF, Committed, batches_of
from tests.support.deep import examples
from tests.support.waiting import PATIENCE


def read(root: Path, table: str) -> pl.DataFrame:
    return pl.read_delta(str(root / "gold" / table))


def key_of(rows: pl.DataFrame) -> list[str]:
    return [name for name in NAMES if name in rows.columns]


def present(rows: pl.DataFrame, *newest_by: str) -> pl.DataFrame:
    """The newest row of each key in the newest epoch."""
    of_epoch = rows.filter(pl.col("epoch") == pl.col("epoch").max())
    return of_epoch.sort(newest_by).unique(key_of(rows), keep="last")


def history(rows: pl.DataFrame, queues: pl.DataFrame) -> pl.DataFrame:
    """Every row in whose second something happened: an epoch supersedes earlier ones from its first second on, a
    correction what was told of its queue."""
    begins = queues.filter(pl.col("corrects").is_null()).group_by("broker", "epoch").agg(first=pl.col("second").min())
    later = pl.col("first").reverse().cum_min().reverse().shift(-1).over("broker")
    told = rows.join(begins.sort("epoch").with_columns(superseded_from=later), on=["broker", "epoch"])
    told = told.filter(pl.col("superseded_from").is_null() | (pl.col("second") < pl.col("superseded_from")))
    corrections = queues.filter(pl.col("corrects").is_not_null()).select("broker", "queue", "revision", "corrects")
    told = told.with_row_index("row")
    wrong = told.join(corrections, on=["broker", "queue"], suffix="_later").filter(
        (pl.col("revision_later") > pl.col("revision")) & (pl.col("corrects_later") <= pl.col("second"))
    )
    told = told.join(wrong, on="row", how="anti").sort("epoch", "revision")
    return told.unique([*key_of(rows), "second"], keep="last").filter("happened")


def ages(rows: pl.DataFrame) -> pl.DataFrame:
    """Every bucket as it was told last, but for those within a longer one that was told later."""
    key, bucket = key_of(rows), ["bucket_start", "bucket_seconds"]
    newest = rows.sort("revision").unique([*key, *bucket], keep="last").filter(pl.col("count") > 0)
    newest = newest.with_row_index("row")
    longer = rows.select(*key, *bucket, "revision")
    begins = pl.col("bucket_start_longer")
    covered = newest.join(longer, on=key, nulls_equal=True, suffix="_longer").filter(
        pl.col("bucket_seconds_longer") > pl.col("bucket_seconds"),
        pl.col("revision_longer") > pl.col("revision"),
        begins <= pl.col("bucket_start"),
        pl.col("bucket_start") < begins + pl.duration(seconds=pl.col("bucket_seconds_longer")),
    )
    return newest.join(covered, on="row", how="anti")


def as_counted(wanted: list[Row], rows: pl.DataFrame, without: set[str] | None = None) -> None:
    columns = [name for name in wanted[0] if name not in (without or ())]
    ours = [{name: row[name] for name in columns} for row in wanted]
    assert len(ours) > 3 and differences(ours, rows.select(columns).to_dicts()) == []


def lived(root: Path, seed: int) -> Committed:
    """A log with late rows and restarts, told by the analysis as it came."""
    log, rng = Committed(root), random.Random(seed)
    events, samples = generate(seed, messages=80, seconds=150)
    writer = Writer(root)
    for batch in batches_of(events, rng, 8, 30.0):
        log.append(batch, samples)
        samples = []
        if rng.random() < 0.3:
            writer.close()
            writer = Writer(root)
        writer.step()
    writer.close()
    return log


@pytest.mark.parametrize("seed", [1, 2][: examples(1, 2)])
def test_every_row_is_what_the_reference_counts(tmp_path: Path, seed: int) -> None:
    log = lived(tmp_path, seed)
    queues = read(tmp_path, "queue_state")
    for view in PRESENT:
        newest_by = ("revision", "second") if view == "attempt_age_now" else ("as_of", "second", "revision")
        rows = present(read(tmp_path, TABLE_OF[view]), *newest_by)
        if view == "attempt_age_now":
            rows = rows.filter(pl.col("count") > 0)
        as_counted(expected_rows(log.reference, view), rows, AGING[view])
    for view in HISTORY:
        as_counted(expected_rows(log.reference, view), history(read(tmp_path, TABLE_OF[f"{view}_now"]), queues))
    as_counted(expected_rows(log.reference, "attempt_age"), ages(read(tmp_path, "attempt_age")))


def present_in_spark(table: str, columns: list[str]) -> str:
    """The newest row of each key in the newest epoch."""
    key = ", ".join(KEYS[table])
    newest_by = "revision DESC, second DESC" if table == "attempt_age" else "as_of DESC, second DESC, revision DESC"
    return f"""
      SELECT {", ".join(columns)} FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {newest_by}) AS place
        FROM {table} WHERE epoch = (SELECT MAX(epoch) FROM {table})
      ) WHERE place = 1 {"AND count > 0" if table == "attempt_age" else ""}
    """


def history_in_spark(table: str, columns: list[str]) -> str:
    """Every row in whose second something happened, and which nothing superseded."""
    return f"""
      WITH begins AS (
        SELECT broker, epoch, MIN(second) AS first FROM queue_state WHERE corrects IS NULL GROUP BY broker, epoch
      ),
      ends AS (
        SELECT broker, epoch, MIN(first) OVER (
          PARTITION BY broker ORDER BY epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS superseded_from
        FROM begins
      ),
      told AS (
        SELECT {table}.*, ROW_NUMBER() OVER (
          PARTITION BY {", ".join(f"{table}.{name}" for name in KEYS[table])}, {table}.second
          ORDER BY {table}.epoch DESC, {table}.revision DESC
        ) AS place
        FROM {table} JOIN ends ON ends.broker = {table}.broker AND ends.epoch = {table}.epoch
        WHERE (superseded_from IS NULL OR {table}.second < superseded_from) AND NOT EXISTS (
          SELECT 1 FROM queue_state AS later
          WHERE later.broker = {table}.broker AND later.queue = {table}.queue
            AND later.revision > {table}.revision AND later.corrects <= {table}.second
        )
      )
      SELECT {", ".join(columns)} FROM told WHERE place = 1 AND happened
    """


KEYS = {
    "tenant_state": ("broker", "queue", "subscriber", "tenant"),
    "queue_state": ("broker", "queue", "subscriber"),
    "attempt_age": ("broker", "queue", "subscriber", "tenant", "kind"),
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_plain_pyspark_without_any_of_our_code_reads_what_the_reference_counts(tmp_path: Path) -> None:
    log = lived(tmp_path / "lake", 2)
    wanted: dict[str, list[Row]] = {}
    statements = {}
    for view in (*PRESENT, *HISTORY):
        rows, table = expected_rows(log.reference, view), TABLE_OF.get(view) or TABLE_OF[f"{view}_now"]
        columns = [name for name in rows[0] if name not in AGING.get(view, ())]
        wanted[view] = [{name: row[name] for name in columns} for row in rows]
        sql = (present_in_spark if view in PRESENT else history_in_spark)(table, columns)
        for name in KEYS:
            sql = re.sub(rf"(FROM|JOIN) {name}\b", rf"\1 delta.`{tmp_path}/lake/gold/{name}` AS {name}", sql)
        statements[view] = sql.replace(" AS queue_state AS later", " AS later")
    (tmp_path / "answers").mkdir()
    arguments = (os.pathsep.join(map(str, ensure_jars())), json.dumps(statements), str(tmp_path / "answers"))
    environ = {**os.environ, "JAVA_HOME": str(java_home(ensure_java())), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ["PYTHONPATH"] = sysconfig.get_paths()["purelib"]  # the libraries, and by -S not this checkout
    done = subprocess.run(
        [sys.executable, "-S", str(Path(__file__).with_name("plain_spark.py")), *arguments],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=400 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    for view, rows in wanted.items():
        told = pa.ipc.open_file(tmp_path / "answers" / view).read_all().to_pylist()
        assert len(rows) > 3 and differences(rows, told) == [], view
