"""Ages in gold are what the reference counts, bucket by bucket, however the same events come: in any order, late,
with several named subscribers, through restarts, roll-ups over minutes and hours and pruning, whatever is held in
memory."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_analytics.state.ages
import spark_analytics.state.receipts
import spark_analytics.state.recent
import spark_analytics.state.writer
from lake.reader import Reader
from lake.store import Lake
from lake.tables import MARKS
from spark_analytics.maintenance import ages as upkeep
from spark_analytics.maintenance.states import prune
from spark_analytics.state import truth
from spark_analytics.state.writer import Writer
from tests.reference.compare import differences
from tests.reference.folded import KIND, ages, leveled, widths
from tests.reference.generate import Row, generate, logs
from tests.reference.lives import without_duplicates
from tests.reference.partials import fill, marks_of
from tests.reference.reference import Reference
from tests.reference.replaying import append, batches_of, newest, roll_up, without_named_subscribers
from tests.reference.test_views_duckdb import _fast_folder
from tests.support.deep import combinations, examples


def rows(reader: Reader, view: str) -> list[Row]:
    found: list[Row] = reader.query(f"SELECT * FROM {view}").to_pylist()
    return found


def check(reader: Reader, events: list[Row]) -> None:
    """Every row, of history and of now, for this reader and for one that has seen nothing yet."""
    reference, width = Reference(events, []), widths(Lake(reader.root))
    wanted, wanted_now = ages(reference, width), ages(reference, width, now=True)
    with Reader(reader.root) as cold:
        for each in (reader, cold):
            assert differences(wanted, leveled(rows(each, "attempt_age"), width)) == []
            assert differences(wanted_now, leveled(rows(each, "attempt_age_now"), width)) == []


MEMORIES = ("hardly anything in memory", "all in memory")


@pytest.fixture(params=MEMORIES)
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_analytics.state.writer, "MOST_REVISIONS", 4)  # epochs come and go
    if request.param == MEMORIES[0]:
        forget(monkeypatch)


def forget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spark_analytics.state.recent, "MOST_SECONDS", 2)
    patch.setattr(spark_analytics.state.receipts, "_GENERATION", 3)
    patch.setattr(spark_analytics.state.receipts, "MOST_MESSAGES", 5)
    patch.setattr(spark_analytics.state.ages, "REMEMBERED_SECONDS", 1)
    patch.setattr(upkeep, "MANY_FILES", 4)


def told_as_they_come(
    root: Path, events: list[Row], rng: random.Random, *, count: int, disorder: float, often: float = 0.3
) -> None:
    """Commit ``events`` in batches, the writer after most of them, upkeep in between, and look."""
    store, writer, so_far = Lake(root), Writer(root), list[Row]()
    store.create()
    with Reader(root) as reader:
        for batch in batches_of(events, rng, count, disorder):
            append(store, batch, [])
            so_far += batch
            if rng.random() < 0.2:
                store.compact("partials")
            if rng.random() < 0.3:
                roll_up(store, (newest(store) - rng.choice((0, 61, 400))) // 60 * 60, 60)
            if rng.random() < 0.15:
                roll_up(store, (newest(store) - rng.choice((0, 61))) // 3600 * 3600, 3600)
            if rng.random() < 0.3:
                prune(store, "age_state", None, None, None, thorough=True)  # type: ignore[arg-type]
            if rng.random() < 0.15:
                writer.close()
                writer = Writer(root)
            if rng.random() < 0.8:
                writer.step()
                if rng.random() < often:
                    check(reader, so_far)
        writer.step()
        check(reader, so_far)
        prune(store, "age_state", None, None, None, thorough=True)  # type: ignore[arg-type]
        check(reader, so_far)
        width = widths(store)
        exact = ages(Reference(so_far, []), width)
        assert differences(exact, rows(reader, "attempt_age")) == [], "pruned, each is a row of its own"
        assert differences(exact, leveled(everything(root), lambda broker, second: 1)) == []
    writer.close()


def everything(root: Path) -> list[Row]:
    """What stands in the table, each bucket's newest row."""
    told = DeltaTable(str(root / "gold" / "attempt_age")).to_pyarrow_table()
    return plain_duckdb(told)


def plain_duckdb(told: Any) -> list[Row]:
    """`attempt_age` as docs/state.md says to read the table, without any of our code."""
    key = "broker, queue, subscriber, tenant, kind"
    same = " AND ".join(f"longer.{name} IS NOT DISTINCT FROM newest.{name}" for name in key.split(", "))
    text = f"""
    SELECT
      bucket_start, bucket_seconds, {key}, count, mean_seconds, p50_seconds, p90_seconds, p99_seconds, max_seconds,
      skewed, histogram
    FROM (
      FROM told QUALIFY ROW_NUMBER() OVER (PARTITION BY {key}, bucket_start, bucket_seconds ORDER BY revision DESC) = 1
    ) AS newest
    WHERE count > 0 AND NOT EXISTS (
      FROM told AS longer
      WHERE {same} AND longer.bucket_seconds > newest.bucket_seconds AND longer.revision > newest.revision
        AND longer.bucket_start <= newest.bucket_start
        AND epoch(newest.bucket_start) < epoch(longer.bucket_start) + longer.bucket_seconds
    )
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("told", told)
        found: list[Row] = connection.sql(text).to_arrow_table().to_pylist()
    return found


@pytest.mark.parametrize(
    ("memory", "disorder"), combinations(MEMORIES, [3.0, 200.0, 0.0])[: examples(2, 6)], indirect=["memory"]
)
def test_ages_are_what_the_reference_counts_however_events_come(tmp_path: Path, memory: None, disorder: float) -> None:
    events, _ = generate(31, messages=150, seconds=600, burst=20)
    told_as_they_come(tmp_path, events, random.Random(4), count=20, disorder=disorder)


@pytest.mark.parametrize(
    ("memory", "disorder"), combinations(MEMORIES, [30.0, 4000.0])[: examples(1, 4)], indirect=["memory"]
)
def test_and_over_minutes_and_hours(tmp_path: Path, memory: None, disorder: float) -> None:
    events, _ = generate(32, messages=150, seconds=3 * 3600)
    told_as_they_come(tmp_path, events, random.Random(5), count=20, disorder=disorder)


@settings(max_examples=examples(3, 150), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(logs(), st.integers(0, 1000), st.booleans(), st.sampled_from([0.0, 2.0, 100.0]))
def test_any_log_comes_to_the_same_rows_in_any_order(
    log: tuple[list[Row], list[Row]], seed: int, forgetful: bool, disorder: float
) -> None:
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_analytics.state.writer, "MOST_REVISIONS", 3)
        if forgetful:
            forget(patch)
        told_as_they_come(Path(folder), log[0], random.Random(seed), count=7, disorder=disorder, often=0.1)


def first(subscriber: str, at: float, message: str = "m", enqueued: float = 0.0) -> Row:
    events, _ = generate(1, messages=1, seconds=1)
    start = events[0]["occurred_at"].replace(minute=0, second=0, microsecond=0)
    return {
        "broker": "nats",
        "queue": "notices",
        "subscriber": subscriber,
        "tenant": "acme",
        "message_id": message,
        "event_type": "received",
        "attempt": 1,
        "enqueued_at": start + timedelta(seconds=enqueued),
        "occurred_at": start + timedelta(seconds=at),
    }


@pytest.mark.parametrize(
    ("memory", "restarted"), combinations(MEMORIES, [True, False])[: examples(1, 4)], indirect=["memory"]
)
def test_an_earlier_attempt_that_comes_later_takes_the_message_with_it(
    tmp_path: Path, memory: None, restarted: bool
) -> None:
    """Also where it was all that its bucket, and its key, had."""
    store, so_far = Lake(tmp_path), list[Row]()
    store.create()
    writer = Writer(tmp_path)
    with Reader(tmp_path) as reader:
        for event in (
            first("audit", 10.5, "a"), first("audit", 20.5), first("billing", 19.5), first("crm", 400.0),
            first("late", 5.25), first("later", 5000.0, "a"), first("other", 9.0, "a"),
        ):  # fmt: skip
            append(store, [event], [])
            so_far.append(event)
            if restarted:
                writer.close()
                writer = Writer(tmp_path)
            writer.step()
            check(reader, so_far)
    writer.close()


def test_who_received_a_message_before_it_was_enqueued_by_another_clock_was_first(tmp_path: Path, memory: None) -> None:
    """Also where that has been forgotten since."""
    store, so_far, writer = Lake(tmp_path), list[Row](), Writer(tmp_path)
    store.create()
    others = [first("billing", 11.6 + number / 100, f"o{number}", enqueued=11.0) for number in range(9)]
    with Reader(tmp_path) as reader:
        for batch in ([first("billing", 11.5, enqueued=13.0)], others, [first("audit", 13.0, enqueued=13.0)]):
            append(store, batch, [])
            so_far += batch
            writer.step()
        check(reader, so_far)
    writer.close()


@pytest.mark.parametrize("alone", ["a mark", "a roll-up"])
def test_ages_that_change_by_themselves_are_shown_at_once(tmp_path: Path, alone: str) -> None:
    """While no level of any queue has changed."""
    store, writer = Lake(tmp_path), Writer(tmp_path)
    store.create()
    late, early = first("audit", 20.5), first("billing", 19.5)
    events = without_duplicates(generate(34, messages=40, seconds=90)[0]) if alone == "a roll-up" else []
    append(store, [*events, late], [])
    writer.step()
    with Reader(tmp_path) as reader:
        before = rows(reader, "attempt_age_now")
        if alone == "a mark":
            store.append("marks", pa.Table.from_pylist(marks_of([early]), MARKS.schema))
        else:
            roll_up(store, newest(store) // 60 * 60 + 60, 60)
        writer.step()
        width = widths(store)
        counted = Reference([*events, late, *([early] if alone == "a mark" else [])], [])
        wanted = ages(counted, width, now=True)
        if alone == "a mark":  # partials will tell of the others
            before, wanted = ([row for row in each if row["kind"] == KIND] for each in (before, wanted))
        now = rows(reader, "attempt_age_now")
        assert differences(wanted, [row for row in now if alone != "a mark" or row["kind"] == KIND]) == []
        assert differences(wanted, before) != []
        with Reader(tmp_path) as cold:
            assert sorted(map(repr, rows(cold, "attempt_age_now"))) == sorted(map(repr, now))
    writer.close()


def test_columns_are_held_from_the_first_time_that_they_are_asked_for(tmp_path: Path) -> None:
    events, _ = generate(33, messages=60, seconds=60)
    fill(tmp_path, events, [], finished=True)
    named = "SELECT {} FROM attempt_age_now ORDER BY queue, subscriber NULLS FIRST, tenant, kind, bucket_start"
    with Reader(tmp_path) as whole, Reader(tmp_path) as reader:
        wanted = whole.query(named.format("*"))
        assert wanted.num_rows > 10 and all(column.null_count < len(column) for column in wanted.columns)
        for columns in ("count", "count(*) AS n", "Max_Seconds, p99_seconds", "kind", "histogram", "*"):
            sql = named.format(columns) if "(" not in columns else f"SELECT {columns} FROM attempt_age_now"
            found = reader.query(sql)
            if columns == "count(*) AS n":
                assert found.to_pylist() == [{"n": wanted.num_rows}]
            else:
                assert (
                    found.to_pylist()
                    == wanted.select([name.lower() for name in found.column_names])
                    .rename_columns(found.column_names)
                    .to_pylist()
                )
            if columns == "kind":
                assert "histogram" not in reader._state._ages.rows.column_names  # type: ignore[union-attr]
    for sql in ("SELECT a.histogram FROM attempt_age_now a", "SELECT a FROM attempt_age_now a"):
        with Reader(tmp_path) as cold:
            [some, *_] = cold.query(sql).to_pylist()
            assert "None" not in repr([some["histogram"] if "histogram" in some else some["a"]["histogram"]]), sql


@pytest.mark.parametrize("named", [False, True])
def test_what_comes_for_the_newest_seconds_of_a_past_is_added_to_what_memory_holds_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """But where subscribers are named: not all that they received is remembered from the past."""
    log = generate(21, messages=90, seconds=100, burst=10)
    events = without_duplicates(log[0]) if named else without_named_subscribers(log)[0]
    reads, read = list[str](), truth.partials
    monkeypatch.setattr(truth, "partials", lambda lake, broker, *of: reads.append(broker) or read(lake, broker, *of))
    events.sort(key=lambda event: event["occurred_at"])
    late, past = events[-40::3], [event for event in events if event not in events[-40::3]]
    store, writer = Lake(tmp_path), Writer(tmp_path)
    store.create()
    append(store, past, [])
    writer.step()
    append(store, late, [])
    writer.step()
    assert bool(reads) == named
    with Reader(tmp_path) as reader:
        check(reader, events)
    writer.close()
