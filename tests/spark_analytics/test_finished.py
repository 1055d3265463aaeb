"""Spark reads present and past from finished state by the text that the JVM-free reader runs; and those of then."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from lake.errors import UserError
from lake.finished import AGE_STATE, QUEUE_STATE, TENANT_STATE
from lake.store import Lake
from spark_analytics.state.writer import Writer
from spark_analytics.time_travel import AsOf
from spark_analytics.views import register, require_finished_at
from tests.reference.compare import differences, expected_rows
from tests.reference.generate import generate
from tests.reference.lives import without_duplicates
from tests.reference.reference import Reference
from tests.reference.replaying import HISTORY, PRESENT, Committed, append, batches_of, without_named_subscribers
from tests.support.deep import CHOSEN

pytestmark = pytest.mark.spark


def test_the_present_is_that_of_finished_state_now_and_then(lake: Lake, spark: SparkSession) -> None:
    events, samples = without_named_subscribers(generate(14, messages=80, seconds=150, burst=20))
    log, writer, was = Committed(lake.root), Writer(lake.root), list[tuple[AsOf, Reference]]()
    before = datetime.now(UTC)
    for batch in batches_of(events, random.Random(2), 2, 0.0):
        log.append(batch, samples)
        samples = []
        writer.step()
        versions = {name: lake.version(name) for name in (TENANT_STATE.name, QUEUE_STATE.name, AGE_STATE.name)}
        was.append((AsOf(datetime.now(UTC), versions), log.reference))
    writer.close()
    for (as_of, reference), when in zip(was, (was[0][0], None), strict=True):
        views = (*PRESENT, *HISTORY, "attempt_age") if CHOSEN.deep or when is None else (*HISTORY[:1], "attempt_age")
        register(spark, lake, {*views}, as_of=when)
        for view in views:
            rows = spark.sql(f"SELECT * FROM {view}").toArrow().to_pylist()
            wanted = expected_rows(reference, view)
            assert wanted and differences(wanted, rows) == [], (view, as_of)
    with pytest.raises(UserError, match="nothing had finished this lake's state yet"):
        require_finished_at(lake, HISTORY, AsOf(before))
    require_finished_at(lake, ["partials"], AsOf(before))


def test_the_age_of_first_attempt_is_read_from_the_table_itself(lake: Lake, spark: SparkSession) -> None:
    """As docs/state.md tells, by none of our views: a late row, two subscribers and a restart included.

    In a session that is none of ours: tests/reference/test_plain.py.
    """
    events, _ = generate(15, messages=80, seconds=150)
    for batch in batches_of(events, random.Random(2), 3, 60.0):
        append(lake, batch, [])
        writer = Writer(lake.root)
        writer.step()
        writer.close()
    told = spark.read.format("delta").load(str(lake.root / "gold" / "attempt_age"))
    bucket = Window.partitionBy(
        "broker", "queue", "subscriber", "tenant", "kind", "bucket_start", "bucket_seconds"
    ).orderBy(F.desc("revision"))
    newest = told.withColumn("nth", F.row_number().over(bucket)).where("nth = 1 AND count > 0")
    wanted = Reference(without_duplicates(events), []).attempt_age()
    for kind in ("first_attempt", "first_subscriber_first_attempt"):
        mine = [row for row in wanted if row["kind"] == kind]
        rows = newest.where(F.col("kind") == kind).select(*mine[0]).toArrow().to_pylist()
        assert len(mine) > 20 and differences(mine, rows) == []
