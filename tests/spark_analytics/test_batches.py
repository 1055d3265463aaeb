"""A micro-batch gives the same rows of gold whoever computes it, once, and in bounded memory."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lake.errors import SojournError
from lake.store import Lake
from lake.tables import EVENT_SUMMARIES, MARKS, MESSAGE_EVENTS
from spark_analytics.batches import arrivals, executors
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.executors import append_by_executors
from spark_analytics.batches.files import Files, files_of
from spark_analytics.batches.flows import EVENTS, SUMMARIES, Flow
from spark_analytics.batches.read import PIECE_BYTES, pieces
from spark_analytics.batches.tenants import OTHER
from tests.reference.generate import Row, generate
from tests.reference.lives import numbered as attempts_numbered
from tests.reference.lives import without_duplicates
from tests.reference.partials import marks_of, partials_of
from tests.spark_analytics.analysis import analyse
from tests.spark_analytics.events import START, bronze, event
from tests.spark_analytics.test_transforms import assert_same_partials, counted
from tests.support.deep import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

WHO = DRIVER, EXECUTORS = 1 << 30, 0


def some_events(seed: int = 5, messages: int = 300) -> list[Row]:
    """A log in which one source numbers no attempts."""
    return without_duplicates(generate(seed, messages=messages, seconds=60)[0])


def numbered_events(messages: int = 300) -> list[Row]:
    """Those of some events whose sources number attempts: executors alone know all of them."""
    return [row for row in some_events(messages=messages) if (row["broker"], row["queue"]) != ("redis", "mail")]


def fill(lake: Lake, events: list[Row], commits: int = 3) -> list[Row]:
    """Write ``events`` to bronze; they, in the order of those commits."""
    arrived = [events[number::commits] for number in range(commits)]
    for rows in arrived:
        lake.append("message_events", bronze(rows))
    return [row for rows in arrived for row in rows]


def frame(spark: SparkSession, lake: Lake, flow: Flow = EVENTS) -> DataFrame:
    """All of a bronze table, as the job reads a batch of it."""
    return spark.read.format("delta").load(str(lake.path(flow.source.name))).select(*flow.schema.names)


def assert_gold_is_of(lake: Lake, events: list[Row]) -> None:
    assert_same_partials(lake.read("partials").to_pylist(), partials_of(events))
    assert_marks_are_of(lake, events)


def assert_marks_are_of(lake: Lake, events: list[Row]) -> None:
    expected = pa.Table.from_pylist(marks_of(events), MARKS.schema).to_pylist()
    assert counted(lake.read("marks").to_pylist()) == counted(expected)


@pytest.mark.parametrize(("driver_bytes", "who"), [(DRIVER, "driver"), (EXECUTORS, "executors")])
def test_a_stream_gives_the_same_rows_of_gold_whoever_computes_it(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture, driver_bytes: int, who: str
) -> None:
    caplog.set_level(logging.INFO, "spark_analytics.batches.engine")
    events = attempts_numbered(fill(lake, some_events()))
    [summary] = partials_of([event("enqueued", 1.0, tenant="conflated")])
    extra = {"source": "test", "ingested_at": START, "ingest_date": START.date()}
    lake.append("event_summaries", pa.Table.from_pylist([summary | extra], EVENT_SUMMARIES.schema))
    analyse(spark, lake, driver_bytes)
    partials = lake.read("partials").to_pylist()
    assert_same_partials(partials, [*partials_of(events), summary])
    assert_marks_are_of(lake, events)
    batches = [record.getMessage() for record in caplog.records if "flow=" in record.getMessage()]
    assert {message.split()[0] for message in batches} == {"flow=events", "flow=summaries"}
    assert all(f"by={who}" in message for message in batches), batches
    counts = [int(message.split("rows=")[1].split()[0]) for message in batches]
    assert sum(counts) == len(events) + 1


def test_a_batch_that_cannot_be_read_here_is_read_by_spark_which_was_asked_for_no_rows_before(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "spark_analytics.batches.engine")
    events = attempts_numbered(numbered_events())
    fill(lake, events[:200])
    analyse(spark, lake, DRIVER)
    fill(lake, events[200:])
    monkeypatch.setattr("spark_analytics.job.files_of", lambda query, batch_id, table, mirror: None)
    analyse(spark, lake, DRIVER)
    analyse(spark, lake, DRIVER)
    assert_gold_is_of(lake, events)
    by = [record.getMessage().split("by=")[1].split()[0] for record in caplog.records if "by=" in record.getMessage()]
    assert by == ["driver", "executors"]


@pytest.mark.parametrize("driver_bytes", WHO[: examples(1, 2)])
def test_tenants_beyond_the_bound_are_the_same_whoever_computes(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, driver_bytes: int
) -> None:
    monkeypatch.setattr("spark_analytics.batches.read.PIECE_ROWS", 50)
    late = [row | {"tenant": f"{row['tenant']}-{number % 7}"} for number, row in enumerate(some_events(seed=6))]
    arrived = []
    for rows in (some_events(), late):  # a batch each: the first leaves room for some of the second
        arrived += fill(lake, rows)
        analyse(spark, lake, driver_bytes, most_tenants=9)
    kept = {"acme", "globex", "initech", None, *(f"None-{number}" for number in range(6))}
    expected = [
        row | {"tenant": row["tenant"] if row["tenant"] in kept else OTHER} for row in attempts_numbered(arrived)
    ]
    assert {row["tenant"] for row in expected} == {*kept, OTHER}
    assert_gold_is_of(lake, expected)


@pytest.mark.parametrize(("first", "again"), [(EXECUTORS, DRIVER), (DRIVER, EXECUTORS)][: examples(1, 2)])
def test_after_a_crash_between_marks_and_partials_whoever_goes_on_gives_the_same_rows(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, first: int, again: int
) -> None:
    lives = some_events(messages=200)
    arrived = fill(lake, lives[:300])
    analyse(spark, lake, again, most_tenants=2)
    arrived += fill(lake, lives[300:])
    with monkeypatch.context() as patched, pytest.raises(SojournError, match="the power failed"):
        patched.setattr(Lake, "add", _failing(Lake.add, "partials"))
        patched.setattr(executors, "_append", _failing(executors._append, lake.path("partials")))
        analyse(spark, lake, first, most_tenants=2)
    assert len(lake.read("marks")) > len(marks_of(attempts_numbered(arrived[:300])))
    analyse(spark, lake, again, most_tenants=2)
    told = {name: name for name in ("acme", "globex", None)}
    assert_gold_is_of(lake, [row | {"tenant": told.get(row["tenant"], OTHER)} for row in attempts_numbered(arrived)])


def _failing(append: Callable[..., Any], place: object) -> Callable[..., Any]:
    """``append``, with a crash before it appends to ``place``."""

    def fail(*arguments: Any, **named: Any) -> Any:
        if place in arguments:
            raise SojournError("the power failed")
        return append(*arguments, **named)

    return fail


def test_the_order_of_arrival_is_that_of_files_and_their_rows_however_spark_splits_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(3)
    kinds = ("received", "received", "failed", "completed", "enqueued")
    paths, arrived = [], []
    for name in ("z", "%20 a", "m"):
        rows = [event(rng.choice(kinds), rng.random(), message_id=f"m{rng.randrange(9)}") for _ in range(400)]
        pq.write_table(bronze(rows), path := tmp_path / f"{name}.parquet", row_group_size=50)
        paths.append(path)
        arrived += rows
    batch = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path)).select(*EVENTS.schema.names)
    with splits_of(spark, 2_000):
        assert batch.rdd.getNumPartitions() > 6
        attempts = Attempts(tmp_path / "attempts")
        attempts.begin(0)
        with arrivals.numbered(batch, Files.here(paths, 0), attempts, EVENTS.schema) as told:
            found = told.toArrow().to_pylist()
    names = ("message_id", "event_type", "attempt", "occurred_at")
    expected = [tuple(row.get(name) for name in names) for row in attempts_numbered(arrived)]
    assert Counter(tuple(row[name] for name in names) for row in found) == Counter(expected)
    assert not [*attempts.folder.iterdir()], "nothing of it stays"


@contextmanager
def splits_of(spark: SparkSession, size: int) -> Iterator[None]:
    """Files cut into splits of ``size`` bytes."""
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: spark.conf.get(name) for name in names}
    for name in names:
        spark.conf.set(name, str(size))
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


def test_executors_write_a_batch_once(spark: SparkSession, lake: Lake) -> None:
    events = numbered_events()
    fill(lake, events)
    for _ in range(2):
        append_by_executors(EVENTS, frame(spark, lake), lake.path, "query", 7)
    assert lake.committed("partials", "query") == lake.committed("marks", "query") == 7
    assert_gold_is_of(lake, events)


def test_after_a_crash_between_marks_and_partials_executors_write_the_partials_alone(
    spark: SparkSession, lake: Lake
) -> None:
    events = numbered_events()
    fill(lake, events)
    marks = pa.Table.from_pylist(marks_of(events), MARKS.schema)
    lake.append("marks", marks, app_id="query", version=0)
    version = lake.version("marks")
    append_by_executors(EVENTS, frame(spark, lake), lake.path, "query", 0)
    assert lake.version("marks") == version
    assert_gold_is_of(lake, events)


def test_executors_append_again_when_a_table_s_properties_change_meanwhile(spark: SparkSession, lake: Lake) -> None:
    events = numbered_events()
    fill(lake, events, 1)
    batch = frame(spark, lake)
    meddling = batch.mapInArrow(partial(_meddling, str(lake.path("marks"))), batch.schema)
    append_by_executors(EVENTS, meddling, lake.path, "query", 0)
    assert DeltaTable(str(lake.path("marks"))).metadata().configuration["delta.logRetentionDuration"] == MEDDLED
    assert_gold_is_of(lake, events)


MEDDLED = "interval 4321 seconds"


def _meddling(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batch as it is, while somebody sets a property of the table at ``path``."""
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": MEDDLED})
    yield from batches


def test_an_empty_batch_is_noted_as_written_by_executors_too(spark: SparkSession, lake: Lake) -> None:
    assert append_by_executors(EVENTS, frame(spark, lake), lake.path, "query", 3) == 0
    assert lake.committed("partials", "query") == lake.committed("marks", "query") == 3
    assert lake.read("partials").num_rows == 0


def test_both_writers_go_on_in_one_table_past_each_other_s_checkpoints(spark: SparkSession, lake: Lake) -> None:
    marks = pa.Table.from_pylist(marks_of(numbered_events(messages=20)), MARKS.schema)
    rows = spark.createDataFrame(marks)
    lake.ensure("marks").alter.set_table_properties({"delta.checkpointInterval": "2"})
    for version in range(6):
        if version % 4 < 2:
            executors._append(rows, lake.path("marks"), "query", version)
        else:
            lake.append("marks", marks, app_id="query", version=version)
    assert len(list(lake.path("marks").glob("_delta_log/*.checkpoint.parquet"))) >= 3
    assert Lake(lake.root).committed("marks", "query") == 5
    assert Lake(lake.root).read("marks").num_rows == 6 * marks.num_rows
    assert spark.read.format("delta").load(str(lake.path("marks"))).count() == 6 * marks.num_rows


@pytest.mark.parametrize("driver_bytes", WHO[: examples(1, 2)])
def test_a_column_that_bronze_gained_is_null_in_older_files_whoever_computes(
    spark: SparkSession, lake: Lake, driver_bytes: int
) -> None:
    older = [event("enqueued"), event("received", 0.5, attempt=1), event("completed", 0.7, attempt=1)]
    newer = [event("completed", 0.9, attempt=1, processing_seconds=0.25, message_id="m2", tenant="globex")]
    path = lake.path("message_events")
    shutil.rmtree(path)
    gained = ["processing_seconds", "tenant"]
    DeltaTable.create(str(path), pa.schema([field for field in MESSAGE_EVENTS.schema if field.name not in gained]))
    write_deltalake(str(path), bronze(older).drop_columns(gained), mode="append")
    fresh = Lake(lake.root)
    fresh.append("message_events", bronze(newer))
    analyse(spark, fresh, driver_bytes)
    assert_gold_is_of(fresh, [row | {"tenant": None} for row in older] + newer)


def files_in_a_stream(spark: SparkSession, table: Path, checkpoint: Path) -> list[Files | None]:
    """What files_of tells of each batch of a stream over ``table``."""
    told: list[Files | None] = []
    queries: list[StreamingQuery] = []

    def look(batch: DataFrame, batch_id: int) -> None:
        while not queries:
            time.sleep(0.01)
        told.append(files_of(queries[0], batch_id, table))

    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(table)).select("queue")
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(look)
    query = writer.trigger(availableNow=True).start()
    queries.append(query)
    assert query.awaitTermination(60)
    return told


def test_the_files_of_each_batch_are_found_in_spark_s_plan(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    fill(lake, some_events(messages=30), 3)
    told = files_in_a_stream(spark, lake.path("message_events"), tmp_path / "checkpoint")
    assert None not in told, "Spark or Delta changed: batches are no longer computed in the driver"
    found = [path for files in told if files for path in files.paths or ()]
    assert sorted(found) == sorted(lake.path("message_events").rglob("*.parquet"))
    assert [files.size_bytes for files in told if files] == [path.stat().st_size for path in found]


def test_files_of_which_deletion_vectors_may_hide_rows_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("orders",), ("mail",)], "queue string").coalesce(1)
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(tmp_path / "table"))
    assert DeltaTable(str(tmp_path / "table")).protocol().min_reader_version == 3
    [files] = files_in_a_stream(spark, tmp_path / "table", tmp_path / "checkpoint")
    assert files is not None and len(files.uris) == 1 and files.paths is None


def test_pieces_have_all_rows_and_every_column_of_files_of_any_age(tmp_path: Path) -> None:
    rows = bronze([event("enqueued", number / 10, tenant=f"t{number % 3}") for number in range(50)])
    pq.write_table(rows, tmp_path / "new.parquet")
    pq.write_table(rows.drop_columns(["processing_seconds", "tenant"]), tmp_path / "old.parquet")
    [piece] = pieces([tmp_path / "new.parquet", tmp_path / "old.parquet"], EVENTS.schema)
    assert piece.schema == EVENTS.schema
    assert piece.num_rows == 100
    tenants = piece.column("tenant").to_pylist()
    assert (tenants[:50], tenants[50:]) == (rows.column("tenant").to_pylist(), [None] * 50)


def test_ids_of_a_megabyte_are_cut_into_pieces_of_bounded_size(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = bronze([event("enqueued", number, message_id=rng.randbytes(1 << 19).hex()) for number in range(150)])
    pq.write_table(rows, tmp_path / "ids.parquet")
    sizes = [(piece.nbytes, piece.num_rows) for piece in pieces([tmp_path / "ids.parquet"], EVENTS.schema)]
    assert sum(count for _, count in sizes) == 150
    assert max(size for size, _ in sizes) <= 2 * PIECE_BYTES


def test_files_without_rows_make_no_piece(tmp_path: Path) -> None:
    pq.write_table(bronze([]), tmp_path / "empty.parquet")
    assert list(pieces([tmp_path / "empty.parquet"], EVENTS.schema)) == []
    assert list(pieces([], SUMMARIES.schema)) == []
