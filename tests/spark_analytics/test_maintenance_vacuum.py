"""Vacuum and log clean-up: what nobody needs goes, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lake.store import Lake
from lake.tables import QUEUE_SAMPLES
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.bronze import drop_days, old_days
from spark_analytics.maintenance.routine import preview, run_maintenance
from spark_analytics.maintenance.sizes import size
from spark_analytics.maintenance.streams import needed
from spark_analytics.maintenance.vacuum import expired
from tests.spark_analytics.events import bronze, event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Everything that was replaced goes at once.
AT_ONCE = Retention(replaced_for=timedelta(0))
NAME = "message_events"


@pytest.fixture(autouse=True)
def _checkpoints_each_ten_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of each hundred: the same in a tenth of the time."""
    for module in ("lake.store", "spark_analytics.maintenance.vacuum"):
        monkeypatch.setattr(f"{module}.CHECKPOINT_INTERVAL", 10)


def append(lake: Lake, number: int, *, day: date = date(2026, 3, 1)) -> None:
    """One event in a commit of its own."""
    rows = bronze([event("enqueued", number, message_id=str(number)) | {"event_id": str(number), "ingest_date": day}])
    lake.append(NAME, rows, app_id="collector", version=number)


def grown(root: Path, commits: int) -> Lake:
    lake = Lake(root)
    for number in range(commits):
        append(lake, number)
    return lake


def ids(lake: Lake) -> list[int]:
    return sorted(int(name) for name in lake.read(NAME, columns=["event_id"]).column("event_id").to_pylist())


def log_of(lake: Lake) -> Path:
    return lake.path(NAME) / "_delta_log"


def commits_of(lake: Lake) -> list[int]:
    return sorted(int(path.stem) for path in log_of(lake).glob("*.json"))


def data_files(lake: Lake) -> set[str]:
    return {path.name for path in lake.path(NAME).rglob("*.parquet") if path.parent.name != "_delta_log"}


def checkpoint_at(lake: Lake, version: int, *, begins: bool = False) -> None:
    """A checkpoint as Spark 4.2 with Delta 4.4 writes it: batch 0 is done and ended before ``version``."""
    folder = lake.state_path("checkpoints", "analyze", "events", "offsets", "0").parent
    source = {
        "sourceVersion": 1,
        "reservoirId": str(lake.ensure(NAME).metadata().id),
        "reservoirVersion": version,
        "index": -1,
        "isStartingVersion": begins,
    }
    folder.joinpath("0").write_text("v1\n{}\n" + json.dumps(source), encoding="utf-8")
    lake.state_path("checkpoints", "analyze", "events", "commits", "0").write_text("v1\n{}", encoding="utf-8")


def test_replaced_files_and_old_log_entries_go_and_every_row_stays(tmp_path: Path) -> None:
    lake = grown(tmp_path, 45)
    run_maintenance(lake, AT_ONCE)
    run_maintenance(lake, AT_ONCE)
    assert ids(lake) == list(range(45))
    assert len(data_files(lake)) == len(lake.ensure(NAME).file_uris()) < 20
    assert commits_of(lake)[0] >= 29
    assert ids(Lake(tmp_path)) == list(range(45))


def test_what_was_replaced_just_now_stays_for_whoever_still_reads_it(tmp_path: Path) -> None:
    lake = grown(tmp_path, 35)
    reader = DeltaTable(str(lake.path(NAME))).to_pyarrow_dataset()
    files, commits = data_files(lake), commits_of(lake)
    run_maintenance(lake, Retention())
    assert files <= data_files(lake)
    assert set(commits) <= set(commits_of(lake))
    assert reader.to_table(columns=["event_id"]).num_rows == 35


def test_a_commit_is_known_to_have_been_made_when_its_log_entry_is_gone(tmp_path: Path) -> None:
    lake = grown(tmp_path, 35)
    lake.append("rejected_records", lake.read("rejected_records"), app_id="other", version=7)
    run_maintenance(lake, AT_ONCE)
    run_maintenance(lake, AT_ONCE)
    again = Lake(tmp_path)
    assert commits_of(lake)[0] >= 19
    assert again.committed(NAME, "collector") == 34
    append(again, 34)
    append(lake, 3)
    assert ids(again) == list(range(35))
    assert again.committed("rejected_records", "other") == 7


def test_a_writer_that_slept_while_the_log_was_cleaned_goes_on(tmp_path: Path) -> None:
    sleeper = grown(tmp_path, 3)
    other = Lake(tmp_path)
    for number in range(3, 35):
        append(other, number)
    run_maintenance(other, AT_ONCE)
    run_maintenance(other, AT_ONCE)
    append(sleeper, 35)
    assert ids(sleeper) == list(range(36))
    assert sleeper.ensure(NAME).version() == int(max(log_of(sleeper).glob("*.crc")).stem)


def test_the_checksum_beside_the_newest_version_is_right_after_it_all(tmp_path: Path) -> None:
    lake = grown(tmp_path, 35)
    run_maintenance(lake, AT_ONCE)
    newest = max(log_of(lake).glob("*.crc"))
    told = json.loads(newest.read_text())
    assert int(newest.stem) == lake.version(NAME)
    assert told["numFiles"] == len(lake.ensure(NAME).file_uris())
    assert told["tableSizeBytes"] == sum(pa.table(lake.ensure(NAME).get_add_actions()).column("size_bytes").to_pylist())
    assert told["metadata"]["configuration"]["delta.logRetentionDuration"] == "interval 0 seconds"


def test_what_a_stream_has_not_read_stays_however_old_it_is(tmp_path: Path) -> None:
    lake = grown(tmp_path, 60)
    checkpoint_at(lake, 41)  # everything until version 40 was read
    unread = {name for number in range(41, 61) for name in added(lake, number)}
    for _ in range(3):
        done = {one.table: one for one in run_maintenance(lake, AT_ONCE)}
        assert "the analysis has not read further" in done[NAME].vacuumed.held
    assert unread <= data_files(lake)
    assert set(range(40, lake.version(NAME) + 1)) <= set(commits_of(lake))
    checkpoint_at(lake, lake.version(NAME) + 1)
    for _ in range(2):
        done = {one.table: one for one in run_maintenance(lake, AT_ONCE)}
        checkpoint_at(lake, lake.version(NAME) + 1)
    assert done[NAME].vacuumed.held == ""
    assert not unread & data_files(lake)
    assert commits_of(lake)[0] >= 59


def added(lake: Lake, version: int) -> list[str]:
    lines = (log_of(lake) / f"{version:020d}.json").read_text().splitlines()
    return [Path(action["add"]["path"]).name for line in lines if "add" in (action := json.loads(line))]


def test_every_round_shortens_the_log_of_events_and_of_events_alone(tmp_path: Path) -> None:
    lake = grown(tmp_path, 45)
    for number in range(45):
        lake.append("queue_samples", samples_at(number))
    samples = log_files(lake, "queue_samples")
    quick = Retention(event_log_for=timedelta(0))
    checkpoint_at(lake, 25)
    run_maintenance(lake, quick, thorough=False)
    assert 10 < commits_of(lake)[0] <= 24  # from where on the stream asks
    checkpoint_at(lake, 46)
    run_maintenance(lake, quick, thorough=False)
    assert commits_of(lake)[0] > 30
    assert ids(Lake(tmp_path)) == list(range(45))
    assert log_files(lake, "queue_samples") == samples
    append(lake, 45)
    assert ids(lake) == list(range(46))


def samples_at(number: int) -> pa.Table:
    at = datetime(2026, 3, 1, 12, 0, number, tzinfo=UTC)
    row = {"sampled_at": at, "broker": "b", "queue": "q", "source": "t", "depth": 1, "ingested_at": at}
    return pa.Table.from_pylist([row | {"ingest_date": at.date()}], QUEUE_SAMPLES.schema)


def log_files(lake: Lake, name: str) -> set[str]:
    return {path.name for path in (lake.path(name) / "_delta_log").iterdir() if path.suffix == ".json"}


def test_commits_without_new_data_do_not_hold_files_back(tmp_path: Path) -> None:
    lake = grown(tmp_path, 50)
    checkpoint_at(lake, 51)
    lake.compact(NAME)
    table = lake.ensure(NAME)
    assert needed(tmp_path, table, log_of(lake)).files_since is None
    append(lake, 50)
    assert needed(tmp_path, lake.ensure(NAME), log_of(lake)).files_since is not None
    checkpoint_at(lake, 52, begins=True)  # it reads the table as it was after the compaction, file by file
    assert needed(tmp_path, lake.ensure(NAME), log_of(lake)).files_since is not None


def test_the_log_is_cleaned_as_the_library_would_clean_it(tmp_path: Path) -> None:
    lake = grown(tmp_path / "one", 45)
    lake.ensure(NAME).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    names = {path.name for path in log_of(lake).iterdir()}
    ours = names - {path.name for path in expired(log_of(lake), datetime.now(UTC))}
    other = Lake(tmp_path / "other")
    other.ensure(NAME).cleanup_metadata()
    theirs = {path.name for path in log_of(other).iterdir()}
    assert sorted(name for name in ours if ".crc" not in name) == sorted(name for name in theirs if ".crc" not in name)
    assert len(ours) < len(names)


def test_merging_bronze_says_that_no_data_changed(tmp_path: Path) -> None:
    lake = grown(tmp_path, 60)
    before = lake.version(NAME)
    run_maintenance(lake, Retention())
    actions = [
        json.loads(line)
        for number in range(before + 1, lake.version(NAME) + 1)
        for line in (log_of(lake) / f"{number:020d}.json").read_text().splitlines()
    ]
    changes = Counter(
        (kind, action[kind]["dataChange"]) for action in actions for kind in ("add", "remove") if kind in action
    )
    assert changes == {("add", False): 1, ("remove", False): 60}


def test_a_dry_run_foretells_and_changes_nothing(tmp_path: Path) -> None:
    lake = grown(tmp_path, 35)
    run_maintenance(lake, Retention())
    there = size(lake, NAME)
    version = lake.version(NAME)
    [foretold] = [one.vacuumed for one in preview(lake, AT_ONCE) if one.table == NAME]
    assert (size(lake, NAME), lake.version(NAME)) == (there, version)
    assert foretold.log_files == len(expired(log_of(lake), datetime.now(UTC))) >= 19
    [now] = [one for one in preview(lake, Retention()) if one.table == NAME]
    assert (now.vacuumed.files, now.vacuumed.log_files) == (0, 0)


def test_what_a_killed_writer_left_uncommitted_goes_too(tmp_path: Path) -> None:
    lake = grown(tmp_path, 3)
    orphan = next(lake.path(NAME).rglob("*.parquet")).with_name("part-00000-never-committed.snappy.parquet")
    orphan.write_bytes(b"half a file")
    run_maintenance(lake, AT_ONCE)
    assert not orphan.exists()
    assert ids(lake) == [0, 1, 2]


def test_old_days_of_bronze_are_dropped_whole_and_only_where_asked(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(10):
        append(lake, number, day=date(2026, 3, 1 + number))
    now = datetime(2026, 3, 10, 12, tzinfo=UTC)
    run_maintenance(lake, Retention(), now=now)
    assert ids(lake) == list(range(10)), "bronze is kept for ever unless the user says otherwise"
    assert old_days(lake, NAME, timedelta(days=3), now) == [date(2026, 3, 1 + number) for number in range(6)]
    assert drop_days(lake, NAME, timedelta(days=3), now) == 6
    assert ids(lake) == [6, 7, 8, 9]
    lines = (log_of(lake) / f"{lake.version(NAME):020d}.json").read_text().splitlines()
    assert not [line for line in lines if "add" in json.loads(line)], "a day was rewritten, which a stream refuses"
    assert drop_days(lake, NAME, timedelta(days=3), now) == 0


@pytest.mark.parametrize("retention", [Retention(), AT_ONCE])
def test_a_table_that_nothing_happens_to_is_left_alone(tmp_path: Path, retention: Retention) -> None:
    lake = grown(tmp_path, 5)
    run_maintenance(lake, retention)
    version = lake.version(NAME)
    for _ in range(3):
        run_maintenance(lake, retention)
    assert lake.version(NAME) == version


# -- a real stream ----------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_that_was_away_reads_every_event_once_after_any_maintenance(spark: SparkSession, lake: Lake) -> None:
    seen: list[int] = []
    checkpoint = lake.state_path("checkpoints", "analyze", "events")

    def collect(batch: DataFrame, number: int) -> None:
        seen.extend(int(row.event_id) for row in batch.collect())

    def read_on() -> None:
        stream = spark.readStream.format("delta").option("ignoreDeletes", "true").load(str(lake.path(NAME)))
        query = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(collect)
        query.trigger(availableNow=True).start().awaitTermination()

    dropping = Retention(bronze_for=timedelta(days=1), replaced_for=timedelta(0))
    written = 0
    for retention in (AT_ONCE, AT_ONCE, dropping, dropping):
        for _ in range(40):
            append(lake, written, day=date(2026, 3, 1))
            written += 1
        read = len(seen)
        run_maintenance(lake, retention)  # before it has read
        assert len(seen) == read
        read_on()
        assert sorted(seen) == list(range(written))
        run_maintenance(lake, retention)
        run_maintenance(lake, retention)
    assert commits_of(lake)[0] > 100
    assert ids(lake) == []


def test_a_day_of_two_commits_a_second_leaves_at_most_five_thousand_entries_in_a_log(tmp_path: Path) -> None:
    """Told by names and dates alone: an entry a commit, a checkpoint each hundred, versions retained each ten."""
    commits, apart = 2 * 24 * 3600, 2 * 600
    kept = set(range(commits - 1, 0, -apart))
    for version in range(commits - 20_000, commits):  # what a round finds that was long away
        tmp_path.joinpath(f"{version:020}.json").touch()
        if version % 100 == 0 or version in kept:
            tmp_path.joinpath(f"{version:020}.checkpoint.parquet").touch()
    for version in (one for one in kept if one < commits - 20_000):
        for suffix in ("json", "checkpoint.parquet"):
            tmp_path.joinpath(f"{version:020}.{suffix}").touch()
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    for path in expired(tmp_path, long_ago, kept=kept):
        path.unlink()
    left = {path.name for path in tmp_path.iterdir()}
    assert 3000 < len(left) <= 5000
    assert {f"{version:020}.json" for version in kept} <= left
    assert {f"{version:020}.checkpoint.parquet" for version in kept} <= left
    assert {f"{version:020}.json" for version in range(commits - 3000, commits)} <= left
