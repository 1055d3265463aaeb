"""After a long downtime, with Spark: the newest events first, and in the end the gold of one that never slept."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lake.log import log_entry
from lake.store import Lake
from lake.tables import MARKS
from spark_analytics.batches.flows import EVENTS, Flow
from spark_analytics.catching_up.filling import Filling
from spark_analytics.catching_up.gaps import Gaps, told_open
from spark_analytics.job import Job
from spark_analytics.pace import Pace
from spark_analytics.settings import AnalyzeSettings
from tests.reference.generate import Row, generate
from tests.reference.lives import without_duplicates
from tests.reference.partials import marks_of, partials_of
from tests.spark_analytics.analysis import Analysis
from tests.spark_analytics.events import bronze
from tests.spark_analytics.test_job import assert_gold_is_bronze, in_bronze, wait_for_more, write
from tests.spark_analytics.test_transforms import assert_same_partials, counted
from tests.support.deep import examples
from tests.support.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "message_events"
Told = Callable[[int], None]


def _ignore(rows: int) -> None:
    """Nobody is watching."""


class Running:
    """The job in the tests' session, told to read the newest first whatever is unread."""

    def __init__(self, spark: SparkSession, lake: Lake, *, once: bool = False, told: Told = _ignore, **more: int):
        settings = AnalyzeSettings(maintain_every=0, newest_first_after_bytes=1, trigger_interval_seconds=0, **more)
        self.lake = lake
        self.job = Job(spark, settings, lake.root, once=once, on_batch=told)
        self.job.start()

    def until(self, done: Callable[[], bool]) -> None:
        """Run until ``done``, or the end, and stop."""
        deadline = time.monotonic() + PATIENCE * 100
        try:
            while self.job.running() and not done():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            self.job.stop()

    def until_all_is_read(self, events: int) -> None:
        """Run until no gap is open and gold holds as many events as bronze."""
        self.until(lambda: not Gaps(self.lake).open() and in_gold(self.lake) >= events)


def in_gold(lake: Lake) -> int:
    rows = lake.read("partials", columns=["enqueued", "received", "completed", "failed"]).to_pylist()
    return sum(sum(row.values()) for row in rows)


def numbered_log(seed: int) -> list[Row]:
    """A log whose sources number attempts, without types of events that :func:`in_gold` does not count."""
    events = without_duplicates(generate(seed, messages=120, seconds=60)[0])
    return [
        row
        for row in events
        if (row["broker"], row["queue"]) != ("redis", "mail")
        and row["event_type"] in ("enqueued", "received", "completed", "failed")
    ]


def assert_gold_is_of(lake: Lake, events: list[Row]) -> None:
    assert_same_partials(lake.read("partials").to_pylist(), partials_of(events))
    expected = pa.Table.from_pylist(marks_of(events), MARKS.schema).to_pylist()
    assert counted(lake.read("marks").to_pylist()) == counted(expected)


#: Seed, commits read before, bytes of a batch, and of one that the driver computes: the last by executors.
CASES = [(1, 0, 1 << 16, 1 << 30), (2, 3, 1 << 30, 1 << 30), (3, 5, 1 << 17, 1 << 30), (4, 2, 1 << 30, 0)]


@pytest.mark.parametrize(("seed", "read_before", "batch_bytes", "driver_bytes"), CASES[: examples(1, 4)])
def test_gold_is_the_same_as_if_all_had_been_read_in_order(
    spark: SparkSession, lake: Lake, seed: int, read_before: int, batch_bytes: int, driver_bytes: int
) -> None:
    events, commits = numbered_log(seed), 12
    sizes = {"max_bytes_per_trigger": batch_bytes, "driver_bytes": driver_bytes}
    for number in range(commits):
        lake.append(NAME, bronze(events[number::commits]))
        if number + 1 == read_before:
            Running(spark, lake, once=True, **sizes).until(lambda: False)
    Running(spark, lake, **sizes).until_all_is_read(len(events))
    assert_gold_is_of(lake, events)
    told = sorted((row["at"], row["open"]) for row in lake.read("gaps").to_pylist())
    assert [is_open for _, is_open in told] == [True, False]
    Running(spark, lake, once=True, **sizes).until(lambda: False)
    assert_gold_is_of(lake, events)


def test_a_fresh_event_is_in_gold_while_history_is_open(spark: SparkSession, lake: Lake) -> None:
    for number in range(6):
        write(lake, number)
    seen: list[tuple[int, bool]] = []

    def told(rows: int) -> None:
        own = Lake(lake.root)
        seen.append((in_gold(own), bool(told_open(own))))

    Running(spark, lake, told=told).until_all_is_read(6 * 120)
    assert seen[0] == (120, True), "the newest commit alone is in gold, and readers know that more is to come"
    assert_gold_is_bronze(lake)


def test_broken_off_and_down_again_it_fills_all_gaps_and_once_does_so_too(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    for _ in range(3):
        for _ in range(4):
            write(lake, written)
            written += 1
        before = in_gold(lake)
        running = Running(spark, lake, max_bytes_per_trigger=1 << 16)
        with monkeypatch.context() as patch:
            patch.setattr(Filling, "start", lambda filling: None)  # as if it were killed before the first piece
            running.until(lambda before=before: in_gold(lake) > before)  # type: ignore[misc]
    assert len(Gaps(lake).open()) == len(told_open(lake)) == 3
    Running(spark, lake, once=True).until(lambda: False)
    assert Gaps(lake).open() == [] and told_open(lake) == set()
    assert_gold_is_bronze(lake)


def test_a_commit_that_spark_overlooks_in_a_long_log_is_read_all_the_same(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Pace, "rest", lambda *_: None)  # it would wait for the entry that is not there yet
    write(lake, 0)
    elsewhere = Lake(shutil.copytree(lake.root, lake.root.with_name("elsewhere")))
    running = Running(spark, lake)
    wait_until(lambda: in_gold(lake) == 120, "the first commit")
    for number in (1, 2):
        write(elsewhere, number)
    shutil.copytree(elsewhere.path(NAME), lake.path(NAME), ignore=lambda *_: ["_delta_log"], dirs_exist_ok=True)
    query = running.job._queries[EVENTS]
    for version in (3, 2):  # as a look at a folder may tell that takes its time
        entry = f"_delta_log/{version:020d}.json"
        shutil.copy(elsewhere.path(NAME) / entry, lake.path(NAME) / entry)
        wait_until(lambda: not query.isActive, "the query to stumble over the first of them")
    running.until_all_is_read(3 * 120)
    assert "a commit was overlooked" in caplog.text
    assert_gold_is_bronze(lake)


def test_a_commit_that_spark_overlooks_when_it_begins_is_read_all_the_same(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(4):
        write(lake, number)
    begin, entry = Job._begun, log_entry(lake.path(NAME), 3)
    looks = 0

    def begin_while_others_write(job: Job, flow: Flow) -> StreamingQuery:
        nonlocal looks
        looks += 1
        if looks > 1:
            return begin(job, flow)
        entry.rename(aside := lake.root / "aside")  # as a look at a folder may tell that takes its time
        try:
            return begin(job, flow)
        finally:
            aside.rename(entry)

    monkeypatch.setattr(Job, "_begun", begin_while_others_write)
    Running(spark, lake, once=True).until(lambda: False)
    assert looks == 2 and "is begun again: a commit was overlooked" in caplog.text
    assert_gold_is_bronze(lake)


def test_a_piece_that_fails_ends_the_job_and_the_next_goes_on(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(6):
        write(lake, number)
    [first, *_] = sorted(lake.path(NAME).rglob("*.parquet"), key=lambda path: path.stat().st_mtime)
    shutil.copy(first, aside := lake.root / "aside")
    running = Running(spark, lake)
    first.unlink()
    with pytest.raises(Exception, match="damaged or gone"):
        running.until_all_is_read(6 * 120)
    shutil.copy(aside, first)
    Running(spark, lake).until_all_is_read(6 * 120)
    assert_gold_is_bronze(lake)
    assert "reading the newest first" in caplog.text
    assert "history is complete" in caplog.text


@pytest.mark.deep  # as test_catching_up_crashes, which knows where, and test_job
def test_killed_while_history_is_read_it_neither_loses_nor_doubles(
    lake: Lake, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(40):
        write(lake, number)
    for kill in range(2):
        analysis = Analysis(lake, "newest-first")
        for _ in range(4 + kill):
            wait_for_more(lake, analysis, lake.version("partials"))
        analysis.kill()
        assert told_open(lake), "killed too late to prove anything"
        for number in range(5):
            write(lake, 40 + 5 * kill + number)
    Running(spark, lake, once=True).until(lambda: False)
    assert (analysis.log + caplog.text).count("reading the newest first") >= 2
    assert told_open(lake) == set()
    assert in_bronze(lake).total() == 50 * 120
    assert_gold_is_bronze(lake)
