"""``sojourn maintain``, and the background duty of the analysis, as users meet them."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from lake.files import only_one
from lake.store import Lake
from sojourn.cli.main import run
from spark_analytics.maintenance import Retention
from spark_analytics.maintenance.merging import add_actions
from spark_analytics.maintenance.routine import lock_path
from spark_analytics.maintenance.runner import MaintenanceRunner
from spark_analytics.settings import AnalyzeSettings
from tests.reference.partials import fill
from tests.spark_analytics.test_rollup import log_of, totals


@pytest.fixture
def filled(tmp_path: Path) -> Lake:
    events, samples = log_of(7, messages=300, seconds=3000)
    return fill(tmp_path / "lake", events, samples, batches=40)


def test_the_command_says_what_it_did_table_by_table(filled: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    before = totals(filled.read("partials"))
    assert run(["maintain", "--lake", str(filled.root)]) == 0
    told = capfd.readouterr().out
    [partials] = [line.split() for line in told.splitlines() if line.strip().startswith("partials")]
    assert partials[1:4] == ["40", "→", "1"]
    rows = int(partials[-1].replace(",", ""))
    assert rows > 0
    assert add_actions(filled, "partials").num_rows == 1
    assert totals(filled.read("partials")) == before


def test_a_dry_run_says_what_is_due_and_changes_nothing(filled: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    versions = {name: filled.version(name) for name in ("partials", "marks", "queue_samples")}
    assert run(["maintain", "--dry-run", "--lake", str(filled.root)]) == 0
    told = capfd.readouterr().out
    assert "what would be done" in told
    [partials] = [line.split() for line in told.splitlines() if line.strip().startswith("partials")]
    assert int(partials[-1].replace(",", "")) > 0
    assert {name: filled.version(name) for name in versions} == versions


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lake", "nowhere"], "there is no lake"),
        (["--lake", ".", "--vacuum-hours", "0"], "--vacuum-hours"),
        (["--lake", "."], "there is no lake"),
    ],
)
def test_a_mistake_is_one_clear_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["maintain", *arguments]) == 2
    [line] = capfd.readouterr().err.splitlines()
    assert said in line


def test_a_damaged_checkpoint_stops_the_clean_up_and_says_so(filled: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    offsets = filled.state_path("checkpoints", "analyze", "events", "offsets", "3")
    offsets.write_text("v1\n{}\n{half a line", encoding="utf-8")
    assert run(["maintain", "--lake", str(filled.root)]) == 2
    assert "cannot be read" in capfd.readouterr().err.splitlines()[-1]


def test_the_command_waits_for_the_round_of_another_and_gives_up_in_the_end(
    filled: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sojourn.cli.maintain.LOCK_SECONDS", 0.0)
    with only_one(lock_path(filled.root), "maintenance of this lake"):
        assert run(["maintain", "--lake", str(filled.root)]) == 2
    assert "maintenance of this lake is already running" in capfd.readouterr().err
    monkeypatch.setattr("sojourn.cli.maintain.LOCK_SECONDS", 60.0)
    held, let_go = threading.Event(), threading.Event()

    def other() -> None:
        with only_one(lock_path(filled.root), "maintenance of this lake"):
            held.set()
            let_go.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    threading.Timer(0.5, let_go.set).start()
    assert run(["maintain", "--lake", str(filled.root)]) == 0
    thread.join()


def test_the_duty_beside_the_stream_does_the_same_each_so_many_batches(filled: Lake) -> None:
    before = totals(filled.read("partials"))
    runner = MaintenanceRunner(filled.root, 3, Retention())
    for _ in range(2):
        runner.count_batch()
    assert add_actions(filled, "partials").num_rows == 40
    runner.count_batch()
    runner.close()
    assert add_actions(filled, "partials").num_rows == 1
    assert totals(filled.read("partials")) == before


def log_numbers(lake: Lake, name: str) -> list[int]:
    return sorted(int(path.stem) for path in (lake.path(name) / "_delta_log").glob("*.json"))


def test_between_two_rounds_the_logs_that_spark_lists_are_cut(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_analytics.maintenance.runner.LOG_SECONDS", 0.0)
    for name in ("message_events", "queue_samples"):
        for number in range(3):
            filled.ensure(name).alter.set_table_properties({"delta.checkpointInterval": str(100 + number)})
        filled.ensure(name).create_checkpoint()
    before = log_numbers(filled, "queue_samples")
    runner = MaintenanceRunner(filled.root, 100, Retention(event_log_for=timedelta(0)))
    runner.count_batch()
    runner.close()
    assert log_numbers(filled, "message_events") == [filled.ensure("message_events").version()]
    assert log_numbers(filled, "queue_samples") == before
    assert add_actions(filled, "partials").num_rows == 40, "that is a round's work"


def test_the_duty_can_be_turned_off_and_lives_through_a_lake_that_is_damaged(filled: Lake) -> None:
    off = MaintenanceRunner(filled.root, 0, Retention())
    off.count_batch()
    off.close()
    assert add_actions(filled, "partials").num_rows == 40
    for file in filled.path("partials").rglob("*.parquet"):
        file.write_bytes(b"not a Parquet file")
    runner = MaintenanceRunner(filled.root, 1, Retention())
    runner.count_batch()
    runner.close()


def test_the_settings_say_how_long_each_thing_is_kept() -> None:
    assert AnalyzeSettings().retention() == Retention()
    kept = AnalyzeSettings(hours_kept_days=30, bronze_kept_days=7, replaced_kept_hours=48, marks_kept_hours=5)
    assert kept.retention() == Retention(
        hours_for=timedelta(days=30),
        bronze_for=timedelta(days=7),
        replaced_for=timedelta(hours=48),
        marks_for=timedelta(hours=5),
    )
