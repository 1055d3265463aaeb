"""The streaming job on a real lake, in its own process: nothing lost, nothing doubled, whatever ends it."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lake.errors import SojournError, UserError
from lake.files import only_one
from lake.log import log_entry
from lake.reader import Reader
from lake.store import Lake
from lake.tables import EVENT_SUMMARIES, EVENT_TYPES
from spark_analytics import tail
from spark_analytics.batches.flows import EVENTS
from spark_analytics.catching_up.log import is_young
from spark_analytics.catching_up.places import Checkpoint
from spark_analytics.job import Job
from spark_analytics.run import lock_path, rebuild, run
from spark_analytics.settings import AnalyzeSettings
from tests.reference.compare import differences
from tests.reference.partials import partials_of
from tests.reference.replaying import HISTORY, PRESENT
from tests.spark_analytics.analysis import Analysis, analyse, analyse_once
from tests.spark_analytics.events import START, Row, bronze, event
from tests.support.deep import examples
from tests.support.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def some_events(number: int, count: int = 40, since: float = 0.0) -> list[Row]:
    """Whole lives of ``count`` messages, from ``since`` on, some with a failure; ``number`` tells sets apart."""
    rows: list[Row] = []
    for index in range(count):
        at = since + index / 10
        name: Row = {"message_id": f"{number}-{index}", "tenant": f"t{index % 5}", "enqueued": at}
        rows.append(event("enqueued", at, **name))
        rows.append(event("received", at + 0.5, attempt=1, **name))
        if index % 4 == 0:
            rows.append(event("failed", at + 0.6, attempt=1, processing_seconds=0.1, **name))
        else:
            rows.append(event("completed", at + 0.7, attempt=1, processing_seconds=0.2, **name))
    return [row | {"event_id": f"{number}-{position}"} for position, row in enumerate(rows)]


def write(lake: Lake, number: int, since: float = 0.0) -> None:
    lake.append("message_events", bronze(some_events(number, since=since)), app_id="test", version=number)


def in_bronze(lake: Lake) -> Counter[str]:
    return Counter(lake.read("message_events", columns=["event_type"]).column("event_type").to_pylist())


def in_gold(lake: Lake) -> Counter[str]:
    rows = lake.read("partials", columns=list(EVENT_TYPES))
    return Counter(
        {name: sum(rows.column(name).to_pylist()) for name in EVENT_TYPES if any(rows.column(name).to_pylist())}
    )


def assert_gold_is_bronze(lake: Lake) -> None:
    assert in_gold(lake) == in_bronze(lake)
    marks = Counter(lake.read("marks", columns=["message_id"]).column("message_id").to_pylist())
    assert set(marks.values()) <= {1}
    assert marks.total() == in_bronze(lake)["failed"]
    starts = lake.read("partials", columns=["newest_occurred_at"]).column("newest_occurred_at").to_pylist()
    assert min(starts) >= START


@contextmanager
def load(lake: Lake) -> Iterator[None]:
    """Bronze that grows five times a second, as a collector's."""
    done = threading.Event()

    def feed() -> None:
        own = Lake(lake.root)
        number = 0
        while not done.wait(0.2):
            write(own, number, since=float(number))
            number += 1

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        done.set()
        feeder.join()


def wait_for_more(lake: Lake, analysis: Analysis, version: int) -> None:
    deadline = time.monotonic() + PATIENCE * 150
    while lake.version("partials") <= version:
        assert analysis.running(), analysis.log
        assert time.monotonic() < deadline, analysis.log
        time.sleep(0.005)


def analyse_here(spark: SparkSession, lake: Lake) -> None:
    """What is there, by a job that starts from the checkpoint as a new process does, without a new Spark for it."""
    analyse(spark, lake, AnalyzeSettings().driver_bytes)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("maintained", [True, False][: examples(1, 2)])
def test_killed_at_any_instant_under_load_it_neither_loses_nor_doubles(
    lake: Lake, spark: SparkSession, request: pytest.FixtureRequest, maintained: bool
) -> None:
    """What finished state tells is what an analysis tells that nobody has interrupted; maintenance makes it coarser."""
    rng = random.Random()
    with load(lake):
        for _ in range(request.config.getoption("crashes") or examples(1, 50)):
            analysis = Analysis(lake, *([] if maintained else ["unmaintained"]))
            wait_for_more(lake, analysis, lake.version("partials"))
            time.sleep(rng.choice([0.0, rng.random() * 0.2, rng.random() * 2]))
            analysis.kill()
    analyse_here(spark, lake)
    assert in_bronze(lake).total() > 0
    assert_gold_is_bronze(lake)
    if not maintained:
        uninterrupted = Lake(lake.root.parent / "uninterrupted")
        uninterrupted.create()
        shutil.copytree(lake.root / "bronze", uninterrupted.root / "bronze", dirs_exist_ok=True)
        analyse_here(spark, uninterrupted)
        assert_state_is_the_same(uninterrupted, lake)


def assert_state_is_the_same(wanted: Lake, found: Lake) -> None:
    """Row by row, of history and of now."""
    with Reader(wanted.root) as one, Reader(found.root) as other:
        for view in (*PRESENT, *HISTORY, "attempt_age"):
            rows, others = (each.query(f"SELECT * FROM {view}").to_pylist() for each in (one, other))
            for row in rows if "attempt_age" in view else ():
                row["histogram"] = {cell["index"]: cell["count"] for cell in row["histogram"]}
            assert rows, view
            assert differences(rows, others) == [], view


@pytest.mark.timeout(1200)
def test_told_to_stop_it_finishes_its_batch_and_goes_on_later_from_there(lake: Lake, spark: SparkSession) -> None:
    write(lake, 0)
    analysis = Analysis(lake)
    wait_for_more(lake, analysis, 0)
    code, seconds = analysis.terminate()
    assert (code, "Traceback" in analysis.log) == (0, False), analysis.log
    assert seconds < 10
    assert_gold_is_bronze(lake)
    write(lake, 1)
    analyse_here(spark, lake)
    assert_gold_is_bronze(lake)
    version = lake.version("partials")
    analyse_here(spark, lake)
    assert lake.version("partials") == version, "there was nothing new"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("driver_bytes", [AnalyzeSettings().driver_bytes, 0][: examples(1, 2)])
def test_what_comes_while_a_batch_is_open_takes_none_of_spark_s_and_whoever_computes_the_next_leaves_it_out(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, driver_bytes: int
) -> None:
    monkeypatch.setattr(tail, "OPEN_SECONDS", 1e9)
    job = Job(spark, AnalyzeSettings(maintain_every=0), lake.root, once=False, on_batch=lambda rows: None)
    write(lake, 0)
    job.start()
    try:
        for number in range(1, 5):
            wait_until(lambda: job.running() and in_gold(lake) == in_bronze(lake), "gold to have what was written")
            write(lake, number)
        wait_until(lambda: in_gold(lake) == in_bronze(lake), "gold to have what was written last")
    finally:
        job.stop()
    assert Checkpoint(lake.state_path("checkpoints", "analyze", "events")).finished() == [0]
    write(lake, 5)
    analyse(spark, lake, driver_bytes)
    assert_gold_is_bronze(lake)


@pytest.mark.timeout(1200)
def test_without_its_checkpoint_it_refuses_and_rebuilds_when_asked(lake: Lake, spark: SparkSession) -> None:
    write(lake, 0)
    analyse_here(spark, lake)
    before = in_gold(lake)
    shutil.rmtree(lake.state_path("checkpoints"))
    with pytest.raises(UserError, match=r"sojourn analyze --rebuild"):
        run(AnalyzeSettings(), lake.root, threading.Event(), once=True)
    assert in_gold(lake) == before
    analyse_once(lake, "rebuild")
    assert_gold_is_bronze(lake)
    rebuild(AnalyzeSettings(), lake.root)
    assert in_gold(lake) == Counter()
    analyse_here(spark, lake)
    assert_gold_is_bronze(lake)


@pytest.mark.timeout(1200)
def test_a_young_table_is_read_by_its_commits_and_any_other_as_it_is(lake: Lake, spark: SparkSession) -> None:
    place = lake.path("message_events")
    for number in range(3):
        write(lake, number)
    assert is_young(place)
    analyse_here(spark, lake)
    assert_gold_is_bronze(lake)
    rebuild(AnalyzeSettings(), lake.root)
    lake.compact("message_events")
    assert not is_young(place), "its commits tell of files that may be vacuumed"
    table = lake.ensure("message_events")
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    write(lake, 3)
    analyse_here(spark, lake)
    assert_gold_is_bronze(lake)


def test_a_table_that_has_changed_or_whose_log_is_long_or_not_whole_is_not_young(lake: Lake) -> None:
    place = lake.path("message_events")
    write(lake, 0)
    entry = log_entry(place, 1).read_text(encoding="utf-8")
    for version in range(2, 99):
        log_entry(place, version).write_text(entry, encoding="utf-8")
    assert is_young(place)
    log_entry(place, 99).write_text(entry, encoding="utf-8")
    assert not is_young(place), "it takes long to read"
    log_entry(place, 99).unlink()
    log_entry(place, 0).rename(place / "first")
    assert not is_young(place), "its first commit is gone"
    (place / "first").rename(log_entry(place, 0))
    assert is_young(place)
    log_entry(place, 2).write_text('{"metaData":{}}\n' + entry, encoding="utf-8")
    assert not is_young(place), "its rows were others before"


@pytest.mark.timeout(1200)
def test_summaries_are_added_to_what_events_tell(lake: Lake, spark: SparkSession) -> None:
    [partial] = partials_of([event("enqueued", 1.0), event("received", 1.5, attempt=1)])
    extra = {"source": "test", "ingested_at": START, "ingest_date": START.date()}
    lake.append("event_summaries", pa.Table.from_pylist([partial | extra], EVENT_SUMMARIES.schema))
    write(lake, 0)
    analyse_here(spark, lake)
    gold, events = in_gold(lake), in_bronze(lake)
    assert (gold["enqueued"], gold["received"]) == (events["enqueued"] + 1, events["received"] + 1)
    analyse_here(spark, lake)
    assert in_gold(lake) == gold


def test_a_second_analysis_of_the_same_lake_is_refused(lake: Lake) -> None:
    with (
        only_one(lock_path(lake.root), "an analysis of this lake"),
        pytest.raises(UserError, match="already running"),
    ):
        run(AnalyzeSettings(), lake.root, threading.Event(), once=True)


def test_gold_older_than_its_checkpoint_is_refused(lake: Lake) -> None:
    checkpoint = lake.state_path("checkpoints", "analyze", "events", "metadata")
    checkpoint.write_text('{"id": "gone"}', encoding="utf-8")
    (checkpoint.parent / "commits").mkdir()
    (checkpoint.parent / "commits" / "7").write_text("v1\n{}", encoding="utf-8")
    with pytest.raises(UserError, match="gold lacks batches"):
        run(AnalyzeSettings(), lake.root, threading.Event(), once=True)


@pytest.mark.timeout(1200)
def test_a_damaged_table_is_one_clear_line(lake: Lake) -> None:
    write(lake, 0)
    for file in Path(lake.path("message_events")).rglob("*.parquet"):
        file.write_bytes(b"not a Parquet file")
    analysis = Analysis(lake, "once")
    assert analysis.wait() == 2, analysis.log
    [line] = [line for line in analysis.log.splitlines() if line.startswith("error: ")]
    assert "damaged" in line and "Traceback" not in analysis.log


class Ending:
    """A query that ends by an error right behind the first look at it."""

    def __init__(self) -> None:
        self._looks = iter((True,))

    @property
    def isActive(self) -> bool:
        return next(self._looks, False)

    def exception(self) -> Exception:
        return RuntimeError("ended by what it was at")


def test_a_query_that_fails_just_behind_a_look_is_not_taken_for_one_that_is_done(lake: Lake) -> None:
    job = Job(None, AnalyzeSettings(), lake.root, once=True, on_batch=lambda rows: None)  # type: ignore[arg-type]
    job._queries[EVENTS] = Ending()  # type: ignore[assignment]
    job._cause = SojournError("the power failed")
    with pytest.raises(SojournError, match="the power failed"):
        while job.running():
            pass
        pytest.fail("it looks done")
