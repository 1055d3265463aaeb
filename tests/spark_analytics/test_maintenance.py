"""Maintenance: less of everything, and every answer as before."""

from __future__ import annotations

import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake.reader import Reader
from lake.store import Lake
from lake.tables import MARKS, QUEUE_SAMPLES
from spark_analytics.maintenance import Retention, roll_up
from spark_analytics.maintenance import ages as finished_ages
from spark_analytics.maintenance.marks import prunable, prune
from spark_analytics.maintenance.merging import add_actions, merge
from spark_analytics.maintenance.opening import fold, opened
from spark_analytics.maintenance.retention import data_time
from spark_analytics.maintenance.routine import run_maintenance
from tests.reference.generate import START, generate, logs
from tests.reference.partials import fill, marks_of
from tests.reference.replaying import LOOK_BACK
from tests.spark_analytics.test_rollup import SHORT, as_text, log_of, rows_of, table_of, totals
from tests.support.deep import examples
from tests.support.finishing import FinishingReader, finish

Row = dict[str, Any]

NOW_VIEWS = ("tenant_backlog_now", "concurrency_now", "queue_health_now")
HISTORY_VIEWS = ("tenant_backlog", "concurrency", "queue_health")
#: What compares events with a sample: unknown once the sample is from before the opening balance.
COMPARED = ("coverage", "reconciled_backlog")
#: What is judged otherwise where the past is folded anew from an opening balance.
JUDGED = (*LOOK_BACK, *COMPARED)
#: What the opening balance leaves out on purpose: it is history.
HISTORY = ("age_", "processing_")


def moved(rows: list[Row], by: timedelta) -> list[Row]:
    """The log as it would be, had all of it happened ``by`` later."""
    return [{name: value + by if isinstance(value, datetime) else value for name, value in row.items()} for row in rows]


def timed(reader: Reader, view: str) -> list[tuple[datetime, str]]:
    """The rows of a history view as text, with their times."""
    rows = reader.query(f"SELECT * FROM {view}").to_pylist()
    return sorted((row["as_of"], as_text(row, digits=9, without=JUDGED)) for row in rows)


def without_history(all_totals: dict[Any, Any]) -> dict[Any, Any]:
    return {
        key: {
            name: value
            for name, value in mine.items()
            if not any(word in str(name[0]) for word in HISTORY) or name[0] == "finished_unreceived"
        }
        for key, mine in all_totals.items()
    }


# -- the opening balance ----------------------------------------------------------------------------------------------


def old_and_new(seed: int, apart: timedelta) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """Two logs of different messages, one ``apart`` before the other: old events, old samples, new ones."""
    old, old_samples = log_of(seed, messages=200, seconds=400)
    more, _ = log_of(seed + 2000, messages=100, seconds=400)
    old += [row | {"message_id": "o" + row["message_id"]} for row in moved(more, timedelta(hours=3))]
    new, samples = log_of(seed + 1000, messages=300, seconds=400)
    new = [row | {"message_id": "n" + row["message_id"]} for row in moved(new, apart)]
    for row in [*old, *new]:
        row.pop("event_id", None)  # the logs number their events alike
    return old, old_samples, new, moved(samples, apart)


@pytest.mark.parametrize("seed", [21, 22][: examples(1, 2)])
def test_folding_old_hours_changes_nothing_that_is_so_now(tmp_path: Path, seed: int) -> None:
    old, _, new, samples = old_and_new(seed, timedelta(days=30))
    lake = fill(tmp_path, old + new, samples)
    retention = Retention(hours_for=timedelta(days=20))
    now = max(row["occurred_at"] for row in new)
    roll_up(lake, retention, now)
    reader = FinishingReader(tmp_path)
    before = {view: rows_of(reader, view) for view in NOW_VIEWS}
    judged = {view: rows_of(reader, view, without=JUDGED) for view in NOW_VIEWS}
    history = {view: timed(reader, view) for view in HISTORY_VIEWS}
    kept = without_history(totals(lake.read("partials")))
    assert fold(lake, retention, now) > 0
    assert {view: rows_of(reader, view) for view in NOW_VIEWS} == before
    finish(tmp_path, anew=True)
    reader = Reader(tmp_path)
    assert {view: rows_of(reader, view, without=JUDGED) for view in NOW_VIEWS} == judged
    assert without_history(totals(lake.read("partials"))) == kept
    boundary = datetime(2026, 3, 11, tzinfo=UTC)
    for view, rows in history.items():
        left = [text for as_of, text in rows if as_of > boundary]
        assert 0 < len(left) < len(rows) and left == [text for _, text in timed(reader, view)], view
    assert opened(lake) == {"nats": boundary, "redis": boundary}
    rows = [row for row in lake.read("partials").to_pylist() if row["bucket_start"] < boundary]
    assert {row["bucket_start"] for row in rows} == {datetime.fromtimestamp(0, UTC)}
    assert {row["bucket_seconds"] for row in rows} == {int(boundary.timestamp())}
    assert {row["completion_age_count"] for row in rows} == {None}
    finished_ages.prune(lake, thorough=True)
    ages = reader.query("SELECT MIN(bucket_start) AS first, COUNT(*) AS n FROM attempt_age").to_pylist()[0]
    assert ages["first"] >= min(row["occurred_at"] for row in new) - timedelta(hours=1) and ages["n"] > 0
    assert fold(lake, retention, now) == 0, "there was something left to do"


def test_a_later_boundary_takes_in_the_opening_balance_and_what_came_late(tmp_path: Path) -> None:
    old, _, new, samples = old_and_new(31, timedelta(days=30))
    late, punctual = old[:80], old[80:]
    lake = fill(tmp_path, punctual + new, samples)
    now = max(row["occurred_at"] for row in new)
    for kept_for in (timedelta(days=29), timedelta(days=20)):
        retention = Retention(hours_for=kept_for)
        roll_up(lake, retention, now)
        fold(lake, retention, now)
    lake.append("partials", table_of(late))
    roll_up(lake, retention, now)
    fold(lake, retention, now)
    assert without_history(totals(lake.read("partials"))) == without_history(totals(table_of(old + new)))
    starts = lake.read("partials").column("bucket_start").to_pylist()
    assert min(start for start in starts if start.year > 1970) > START + timedelta(days=29)


def test_an_event_from_the_future_ages_nothing(tmp_path: Path) -> None:
    events, samples = log_of(41, messages=100, seconds=200)
    now = max(event["occurred_at"] for event in events)
    wild = events[0] | {"message_id": "wild", "occurred_at": datetime(2099, 1, 1, tzinfo=UTC)}
    lake = fill(tmp_path, [*events, wild], samples)
    expected = totals(lake.read("partials"))
    assert roll_up(lake, Retention(), now) == 0
    assert fold(lake, Retention(), now) == 0
    assert totals(lake.read("partials")) == expected
    assert data_time(datetime(2099, 1, 1, tzinfo=UTC), now) == now


@pytest.mark.parametrize("when", [datetime(1969, 12, 31, 23, 59, 30, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)])
def test_events_from_before_all_time_are_counted_and_hinder_nothing(tmp_path: Path, when: datetime) -> None:
    events, samples = log_of(42, messages=100, seconds=200)
    odd = [event | {"message_id": f"odd{number}", "occurred_at": when} for number, event in enumerate(events[:9])]
    lake = fill(tmp_path, [row | {"event_id": None} for row in events + odd], samples)
    before = without_history(totals(lake.read("partials")))
    now = max(event["occurred_at"] for event in events) + timedelta(days=1)
    for kept_for in (timedelta(days=3), timedelta(days=2)):
        run_maintenance(lake, Retention(hours_for=kept_for), now=now)
    assert without_history(totals(lake.read("partials"))) == before
    starts = sorted(set(lake.read("partials").column("bucket_start").to_pylist()))
    assert starts[0] == datetime.fromtimestamp(0, UTC) and starts[1] > START - timedelta(days=1)


# -- marks ------------------------------------------------------------------------------------------------------------

LATER = timedelta(days=5)


def all_rows(root: Path) -> dict[str, list[str]]:
    """Every row of every history view, and the present, as the lake's partials and marks come to them anew."""
    finish(root, anew=True)
    with Reader(root) as reader:
        views = ("attempt_age", "tenant_backlog", "concurrency", "queue_health", *NOW_VIEWS)
        return {view: rows_of(reader, view, digits=9) for view in views}


@pytest.mark.parametrize("seed", [50, 51][: examples(1, 2)])
def test_forgetting_settled_marks_changes_no_row_of_any_view(tmp_path: Path, seed: int) -> None:
    old, old_samples, new, samples = old_and_new(seed, LATER)
    # Two sets of old events, around the turn of an hour: pauses cross it.
    old, old_samples = (moved(rows, timedelta(minutes=56)) for rows in (old, old_samples))
    lake = fill(tmp_path, old + new, old_samples + samples)
    now = max(row["occurred_at"] for row in new)
    roll_up(lake, Retention(), now)
    before = all_rows(tmp_path)
    there = lake.read("marks").num_rows
    foretold = prunable(lake, Retention(), now)
    gone = prune(lake, Retention(), now)
    assert 0 < gone == foretold
    assert all_rows(tmp_path) == before
    assert lake.read("marks").num_rows == there - gone
    assert prune(lake, Retention(), now) > 0, "what was folded is remembered until the next round"
    assert all_rows(tmp_path) == before
    assert prune(lake, Retention(), now) == 0, "there was something left to do"


@given(logs(), st.sampled_from([0, 57, 59]))
@settings(max_examples=examples(2, 4), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_whatever_happened_nobody_misses_what_is_forgotten(log: tuple[list[Row], list[Row]], minute: int) -> None:
    events, samples = (moved(rows, timedelta(minutes=minute)) for rows in log)
    clock = {"event_type": "enqueued", "message_id": "later", "queue": "other", "occurred_at": START + LATER}
    clocks = [clock | {"broker": broker, "enqueued_at": clock["occurred_at"]} for broker in ("nats", "redis")]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        lake = fill(Path(folder), events + clocks, samples)
        roll_up(lake, Retention(), START + LATER)
        before = all_rows(Path(folder))
        present = _present(Path(folder))
        prune(lake, Retention(), START + LATER)
        assert all_rows(Path(folder)) == before
        retention = Retention(hours_for=timedelta(days=2))
        fold(lake, retention, START + LATER)
        prune(lake, retention, START + LATER)
        finish(folder, anew=True)
        assert _present(Path(folder)) == present


def _present(root: Path) -> dict[str, list[str]]:
    with Reader(root) as reader:
        return {view: rows_of(reader, view, without=JUDGED) for view in NOW_VIEWS}


def test_what_waits_for_its_retry_is_remembered_for_as_long_as_it_waits(tmp_path: Path) -> None:
    place = {"broker": "nats", "queue": "orders", "message_id": "m", "tenant": "acme", "enqueued_at": START}
    lives = [
        place | {"event_type": "enqueued", "occurred_at": START},
        place | {"event_type": "received", "occurred_at": START, "attempt": 1},
        place | {"event_type": "failed", "occurred_at": START, "attempt": 1},
    ]
    other = place | {"message_id": "other", "event_type": "received", "attempt": 2, "occurred_at": START + LATER}
    lake = fill(tmp_path, [*lives, other], [])
    roll_up(lake, Retention(), START + LATER)
    assert prune(lake, Retention(), START + LATER) == 0
    end = place | {"event_type": "completed", "attempt": 2, "occurred_at": START + timedelta(seconds=9)}
    lake.append("marks", pa.Table.from_pylist(marks_of([end]), MARKS.schema))
    assert prune(lake, Retention(), START + LATER) == 2


def test_first_attempts_from_before_the_opening_balance_go_with_their_ages(tmp_path: Path) -> None:
    old, _, new, samples = old_and_new(61, timedelta(days=30))
    lake = fill(tmp_path, old + new, samples)
    retention = Retention(hours_for=timedelta(days=20))
    now = max(row["occurred_at"] for row in new)
    roll_up(lake, retention, now)
    fold(lake, retention, now)
    prune(lake, retention, now)
    firsts = [row for row in lake.read("marks").to_pylist() if row["event_type"] == "received" and row["attempt"] == 1]
    assert firsts and min(row["occurred_at"] for row in firsts) > START + timedelta(days=29)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["partials", "marks"])
def test_merging_files_keeps_every_row_and_touches_what_is_merged_no_more(tmp_path: Path, name: str) -> None:
    events, _ = log_of(71, messages=200, seconds=300)
    events.sort(key=lambda event: event["occurred_at"])
    lake = Lake(tmp_path)
    for start in range(0, len(events), 10):
        part = events[start : start + 10]
        rows = table_of(part) if name == "partials" else pa.Table.from_pylist(marks_of(part), MARKS.schema)
        lake.append(name, rows)
    now = events[-1]["occurred_at"]
    before, files = sorted(map(str, lake.read(name).to_pylist())), add_actions(lake, name).num_rows
    merge(lake, name, now)
    assert sorted(map(str, lake.read(name).to_pylist())) == before
    assert add_actions(lake, name).num_rows < files / 4
    version = lake.version(name)
    merge(lake, name, now)
    assert lake.version(name) == version


def test_files_that_span_hours_are_merged_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    events, _ = log_of(72, messages=400, seconds=10_000)
    for start in range(40):
        lake.append("partials", table_of(events[start::40]))
    before = totals(lake.read("partials"))
    merge(lake, "partials", START)
    assert add_actions(lake, "partials").num_rows == 1
    assert totals(lake.read("partials")) == before


def test_files_are_merged_in_the_end_although_data_time_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_analytics.maintenance.merging.MOST_FILES", 20)
    lake = Lake(tmp_path)
    events, _ = log_of(73, messages=5, seconds=1)
    for _ in range(19):
        lake.append("partials", table_of(events))
    merge(lake, "partials", START)
    assert add_actions(lake, "partials").num_rows == 19
    lake.append("partials", table_of(events))
    before = totals(lake.read("partials"))
    merge(lake, "partials", START)
    assert add_actions(lake, "partials").num_rows == 1
    assert totals(lake.read("partials")) == before


def test_the_whole_round_leaves_nothing_for_a_second_one(tmp_path: Path) -> None:
    events, samples = log_of(81, messages=300, seconds=500)
    lake = fill(tmp_path, events, samples, batches=40)
    lake.create()
    now = max(event["occurred_at"] for event in events)
    run_maintenance(lake, SHORT, now=now)
    versions = {name: lake.version(name) for name in ("partials", "marks", "queue_samples")}
    run_maintenance(lake, SHORT, now=now)
    assert {name: lake.version(name) for name in versions} == versions


def test_rows_added_between_rounds_are_all_there_at_the_end(tmp_path: Path) -> None:
    """Whatever was rolled up, merged or folded while data time moved on, the sums are the events'."""
    rng = random.Random(5)
    lake = Lake(tmp_path)
    everything: list[Row] = []
    retention = Retention(timedelta(minutes=5), timedelta(hours=2), timedelta(days=2), timedelta(hours=3))
    for round_ in range(12):
        events, _ = generate(200 + round_, messages=60, seconds=300)
        events = [
            {name: value for name, value in row.items() if name != "event_id"}
            | {"message_id": f"{round_}-{row['message_id']}"}
            for row in moved(events, timedelta(hours=9 * round_ + rng.random()))
        ]
        events = list({repr(sorted(event.items())): event for event in events}.values())
        everything += events
        lake.append("partials", table_of(events))
        lake.append("marks", pa.Table.from_pylist(marks_of(events), MARKS.schema))
        lake.append("queue_samples", QUEUE_SAMPLES.schema.empty_table())
        run_maintenance(lake, retention, now=max(event["occurred_at"] for event in everything))
    assert without_history(totals(lake.read("partials"))) == without_history(totals(table_of(everything)))
    assert add_actions(lake, "partials").num_rows < 12
