"""First attempts of named subscribers are folded into partials: each message counts once, before and after."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake.appending import Appender
from lake.reader import Reader as Plain
from lake.store import Lake
from lake.tables import FOLDED_KIND, MARKS, PARTIALS
from spark_analytics.maintenance import Retention, roll_up
from spark_analytics.maintenance.marks import prune
from spark_analytics.maintenance.routine import run_maintenance
from tests.reference.compare import differences
from tests.reference.folded import KIND, first_receipts, leveled, widths
from tests.reference.generate import START, generate, logs
from tests.reference.lives import without_duplicates
from tests.reference.partials import fill, marks_of
from tests.reference.reference import Reference
from tests.spark_analytics.test_maintenance import LATER, moved
from tests.spark_analytics.test_maintenance_faults import maintenance
from tests.spark_analytics.test_rollup import table_of
from tests.support.deep import examples
from tests.support.finishing import FinishingReader as Reader
from tests.support.finishing import finish
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
NOW = START + LATER + timedelta(minutes=30)


def log_of_days(seed: int, *, messages: int = 150) -> list[Row]:
    """Messages of six days, two of them around the turn of a day, where what is settled ends."""
    events: list[Row] = []
    for day, shift in enumerate((0, 11.98, 35.98, 60, 84, 120)):
        part, _ = generate(seed + day, messages=messages, seconds=300)
        unique = list({repr(sorted(event.items())): event for event in part}.values())
        events += [
            {**event, "message_id": f"{day}-{event['message_id']}", "event_id": None}
            for event in moved(unique, timedelta(hours=shift))
        ]
    return without_duplicates(events)


def served(reader: Plain) -> list[Row]:
    """What was finished by now, in the buckets that partials of the time have."""
    rows: list[Row] = reader.query(f"SELECT * FROM attempt_age WHERE kind = '{KIND}'").to_pylist()
    return leveled(rows, widths(Lake(reader.root)))


def told_anew(root: Path) -> list[Row]:
    """The same, of what `partials` and `marks` come to by themselves."""
    finish(root, anew=True)
    with Plain(root) as reader:
        return served(reader)


def expected(lake: Lake, events: list[Row]) -> list[Row]:
    """What the reference counts, in the buckets that partials of the time have."""
    return first_receipts(Reference(events, []), widths(lake))


def folded(lake: Lake) -> int:
    """How many messages partials tell of."""
    return sum(row or 0 for row in lake.read("partials").column(f"{FOLDED_KIND}_age_count").to_pylist())


def remembered(lake: Lake) -> int:
    rows = lake.read("marks").to_pylist()
    return sum(row["event_type"] == "received" and row["attempt"] == 1 for row in rows)


@pytest.mark.parametrize("seed", [1, 2][: examples(1, 2)])
def test_history_is_what_the_reference_counts_before_and_after_each_fold(tmp_path: Path, seed: int) -> None:
    events = log_of_days(seed)
    lake, reader = fill(tmp_path, events, []), Reader(tmp_path)
    assert differences(expected(lake, events), served(reader)) == []
    roll_up(lake, Retention(), NOW)
    assert differences(expected(lake, events), served(reader)) == []
    marks = remembered(lake)
    for later in range(4):
        now = NOW + timedelta(days=later)
        clock = {
            "broker": "nats",
            "queue": "clock",
            "message_id": f"{later}",
            "event_type": "failed",
            "occurred_at": now,
        }
        clocks = [clock, clock | {"broker": "redis"}]
        events += clocks
        lake.append("partials", table_of(clocks))
        lake.append("marks", pa.Table.from_pylist(marks_of(clocks), MARKS.schema))
        run_maintenance(lake, Retention(), now=now)
        assert folded(lake) > 0
        assert differences(expected(lake, events), served(reader)) == []
        assert differences(expected(lake, events), served(Plain(tmp_path))) == []
    assert differences(expected(lake, events), told_anew(tmp_path)) == []
    assert remembered(lake) < marks / 4
    version = lake.version("marks")
    assert prune(lake, Retention(), now) == 0 and lake.version("marks") == version, "there was something left to do"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.deep
def test_spark_serves_the_same(tmp_path: Path, spark: SparkSession) -> None:
    from spark_analytics.views import register

    events = log_of_days(3, messages=60)
    lake = fill(tmp_path, events, [])
    lake.create()
    roll_up(lake, Retention(), NOW)
    for _ in range(2):
        finish(tmp_path, anew=True)
        register(spark, lake, {"attempt_age"})
        rows = spark.sql(f"SELECT * FROM attempt_age WHERE kind = '{KIND}'").toArrow().to_pylist()
        assert differences(expected(lake, events), rows) == []
        prune(lake, Retention(), NOW)
    assert folded(lake) > 0


@settings(max_examples=examples(2, 6), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(logs(), st.integers(0, 100))
def test_any_log_folded_in_pieces_as_it_comes(log: tuple[list[Row], list[Row]], seed: int) -> None:
    """Messages come in any order; each one's own events come together, as all of this is older than is remembered."""
    rng = random.Random(seed)
    events = without_duplicates([*log[0], *moved(other(log[0]), timedelta(days=2))])
    clocks = [
        {"broker": broker, "queue": "clock", "message_id": "c", "event_type": "failed", "occurred_at": NOW}
        for broker in ("nats", "redis")
    ]
    piece = {message: rng.randrange(3) for message in sorted({event["message_id"] for event in events})}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        lake = fill(Path(folder), clocks, [])
        for number in range(3):
            batch = [event for event in events if piece[event["message_id"]] == number]
            lake.append("marks", pa.Table.from_pylist(marks_of(batch), MARKS.schema))
            lake.append("partials", table_of(batch))
            roll_up(lake, Retention(), NOW)
            for _ in range(rng.randrange(3)):
                prune(lake, Retention(), NOW)
        with Reader(folder) as reader:
            assert differences(expected(lake, [*clocks, *events]), served(reader)) == []


def other(events: list[Row]) -> list[Row]:
    return [{**event, "message_id": "o" + event["message_id"], "event_id": None} for event in events]


# -- two tables, two commits ------------------------------------------------------------------------------------------


class Killed(Exception):
    """In place of a SIGKILL."""


def one_commit_and_dead(*arguments: Any, **options: Any) -> None:
    write_deltalake(*arguments, **options)
    raise Killed


class DeadAfterCommit(Appender):
    """Killed behind each commit."""

    def commit(self, adds: Sequence[AddAction], positions: Mapping[str, int]) -> bool:
        """As ever, and then no more."""
        if super().commit(adds, positions):
            raise Killed
        return False


def test_killed_after_any_commit_a_message_counts_once_and_the_next_round_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = log_of_days(4, messages=40)
    lake = fill(tmp_path, events, [])
    roll_up(lake, Retention(), NOW)
    wanted = expected(lake, events)
    monkeypatch.setattr("spark_analytics.maintenance.hours.MOST_ROWS", 20)
    reader = Reader(tmp_path)
    for deaths in range(60):
        try:
            with monkeypatch.context() as deadly:
                deadly.setattr("spark_analytics.maintenance.region.write_deltalake", one_commit_and_dead)
                deadly.setattr("lake.store.Appender", DeadAfterCommit)
                prune(Lake(tmp_path), Retention(), NOW)
            break
        except Killed:
            # Whoever follows sees each commit by itself; whoever begins then has the two tables alone.
            rows = told_anew(tmp_path) if deaths % 2 else served(reader)
            assert differences(wanted, rows) == []
            reader = Reader(tmp_path) if deaths % 2 else reader
    assert 6 < deaths < 59
    assert prune(Lake(tmp_path), Retention(), NOW) == 0 < folded(lake)
    assert differences(wanted, served(reader)) == []
    assert differences(wanted, told_anew(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.deep
def test_killed_at_any_instant_every_message_counts_once(tmp_path: Path) -> None:
    rng = random.Random()
    lake = Lake(tmp_path)
    everything: list[Row] = []
    interrupted = 0
    for number in range(2):
        events = [
            {**event, "message_id": f"{number}-{event['message_id']}"}
            for event in moved(log_of_days(20 + number, messages=30), timedelta(days=2 * number))
        ]
        everything += events
        lake.append("partials", table_of(events))
        lake.append("marks", pa.Table.from_pylist(marks_of(events), MARKS.schema))
        now = max(event["occurred_at"] for event in everything)
        for _ in range(2):
            process = maintenance(lake, now.isoformat(), kept_days=400)
            time.sleep(rng.random() * 2)  # a round takes seconds
            interrupted += process.poll() is None
            process.kill()
            process.wait()
            assert counted(lake) == messages(everything)
    assert interrupted > 0
    pair = [maintenance(lake, now.isoformat(), kept_days=400) for _ in range(2)]
    assert [process.wait(timeout=100 * PATIENCE) for process in pair] == [0, 0]
    run_maintenance(lake, Retention(), now=now)
    assert counted(lake) == messages(everything)
    assert folded(lake) > 0


def counted(lake: Lake) -> int:
    return sum(row["count"] for row in served(Reader(lake.root)))


def messages(events: list[Row]) -> int:
    return sum(row["count"] for row in first_receipts(Reference(events, []), lambda broker, second: 3600))


# -- who was first ----------------------------------------------------------------------------------------------------

#: An hour before the end of a day.
EVE = datetime(2026, 3, 1, 23, tzinfo=UTC)


def attempt(subscriber: str, hours: float, *, number: int = 1, event_type: str = "received") -> Row:
    """Something that happened to the message ``hours`` after EVE."""
    return {
        "broker": "nats",
        "queue": "notices",
        "subscriber": subscriber,
        "tenant": "acme",
        "message_id": "m",
        "event_type": event_type,
        "attempt": number,
        "enqueued_at": EVE,
        "occurred_at": EVE + timedelta(hours=hours),
    }


#: What happens to one message of each queue, by the day after EVE on which it is told.
ARRIVALS = {
    "a week": {0: [attempt("audit", 0.5)]},
    "others": {0: [attempt("audit", 0.5)], 2: [attempt("billing", 2)], 3: [attempt("late", 47)]},
    "late": {0: [attempt("audit", 0.5)], 4: [attempt("billing", 0.25)]},
    "forgotten": {0: [attempt("audit", 0.5)], 7: [attempt("billing", 7 * 24)]},
    "paused": {0: [attempt("audit", 0.25, number=0, event_type="failed"), attempt("audit", 0.5)]},
}


@dataclass(frozen=True)
class Week:
    """Eight days with two rounds of upkeep each, behind an analysis that starts anew each day; read only."""

    root: Path
    told: list[tuple[str, float]]  #: each queue's mean ages by the hour, as history has them at the end

    def ages(self, queue: str) -> list[float]:
        """Those of one queue."""
        return [age for name, age in self.told if name == queue]

    def remembered(self, queue: str) -> int:
        """How many first attempts of the queue retained events hold still."""
        rows = Lake(self.root).read("marks").to_pylist()
        return sum(row["event_type"] == "received" and row["attempt"] == 1 and row["queue"] == queue for row in rows)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    root = tmp_path_factory.mktemp("week")
    lake = Lake(root)
    for day in range(8):
        now = EVE + timedelta(days=day)
        clock = {"broker": "nats", "queue": "clock", "message_id": "c", "event_type": "failed", "occurred_at": now}
        events = [clock]
        for queue, arrivals in ARRIVALS.items():
            events += [event | {"queue": queue} for event in arrivals.get(day, [])]
        lake.append("marks", pa.Table.from_pylist(marks_of(events), MARKS.schema))
        lake.append("partials", table_of(events))
        finish(root)
        for _ in range(2):
            run_maintenance(lake, Retention(), now=now)
    followed, anew = (
        sorted((row["queue"], row["mean_seconds"] / 3600 * row["count"]) for row in rows)
        for rows in (served(Reader(root)), told_anew(root))
    )
    assert followed == anew
    return Week(root, followed)


def test_who_comes_up_to_two_days_later_was_not_first(week: Week) -> None:
    assert week.ages("others") == [0.5]


def test_whose_first_attempt_is_told_after_the_fold_does_not_count_again(week: Week) -> None:
    assert week.ages("late") == [0.5]


def test_who_comes_when_the_fold_is_forgotten_counts_as_another_first(week: Week) -> None:
    """The limit that docs/maintenance.md tells."""
    assert week.ages("forgotten") == [0.5, 168]


def test_a_first_attempt_that_ends_a_pause_stays(week: Week) -> None:
    assert week.ages("paused") == [0.5]
    assert week.remembered("paused") == 1


def test_killed_before_partials_tell_of_it_a_message_counts_though_another_attempt_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = EVE + timedelta(days=4)
    clock = {"broker": "nats", "queue": "clock", "message_id": "c", "event_type": "failed", "occurred_at": now}
    lake = fill(tmp_path, [*ARRIVALS["paused"][0], attempt("billing", 0.4), clock], [])
    with monkeypatch.context() as deadly, pytest.raises(Killed):
        deadly.setattr("spark_analytics.maintenance.region.write_deltalake", one_commit_and_dead)
        prune(Lake(tmp_path), Retention(), now)
    assert sorted(row["fold"] or 0 for row in lake.read("marks").to_pylist() if row["attempt"] == 1) == [0, 1]
    assert folded(lake) == 0
    assert [row["mean_seconds"] for row in told_anew(tmp_path)] == [0.4 * 3600]


def test_the_present_knows_what_was_folded_when_its_marks_are_gone(week: Week) -> None:
    assert week.remembered("a week") == 0
    with Plain(week.root) as reader:
        rows = reader.query(f"SELECT * FROM attempt_age_now WHERE kind = '{KIND}' AND queue = 'a week'").to_pylist()
    [row] = rows
    assert (row["subscriber"], row["count"], row["bucket_seconds"]) == (None, 1, 3600)


# -- older lakes ------------------------------------------------------------------------------------------------------

NEW = {"partials": [name for name in PARTIALS.schema.names if FOLDED_KIND in name], "marks": ["fold"]}


def test_a_lake_from_before_the_columns_is_finished_and_folded(tmp_path: Path) -> None:
    events = log_of_days(5, messages=40)
    newer = fill(tmp_path / "new", events, [])
    for name, columns in NEW.items():
        rows = newer.read(name).drop_columns(columns)
        write_deltalake(str(tmp_path / "old" / newer.path(name).relative_to(newer.root)), rows)
    older, reader = Lake(tmp_path / "old"), Reader(tmp_path / "old")
    assert "fold" not in [field.name for field in DeltaTable(str(older.path("marks"))).schema().fields]
    wanted = expected(newer, events)
    assert wanted and differences(wanted, served(reader)) == []
    run_maintenance(older, Retention(), now=NOW)
    assert differences(expected(older, events), served(reader)) == []
    assert folded(older) > 0
    assert differences(expected(older, events), told_anew(tmp_path / "old")) == []
    assert reader.query("SELECT * FROM tenant_backlog_now").num_rows > 0
