"""The store: numbered commits happen once, and a broken lake says what is wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lake.errors import UserError
from lake.files import only_one
from lake.store import Lake, LakeError, UnwritableRows, conform
from lake.tables import REJECTED_RECORDS, TABLES

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def rejected(*reasons: str) -> pa.Table:
    rows = [
        {
            "received_at": NOW,
            "source": "test",
            "reason": reason,
            "raw": "",
            "count": 1,
            "ingested_at": NOW,
            "ingest_date": date(2026, 1, 2),
        }
        for reason in reasons
    ]
    return pa.Table.from_pylist(rows, schema=REJECTED_RECORDS.schema)


def test_a_numbered_commit_happens_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.append("rejected_records", rejected("a"), app_id="tap", version=7)
    assert not lake.append("rejected_records", rejected("a"), app_id="tap", version=7)
    assert not Lake(tmp_path).append("rejected_records", rejected("a"), app_id="tap", version=6)
    assert lake.append("rejected_records", rejected("a"), app_id="other", version=7)
    assert lake.read("rejected_records").num_rows == 2
    assert lake.committed("rejected_records", "tap") == 7
    assert lake.committed("rejected_records", "nobody") is None


def test_an_empty_commit_still_records_its_number(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append("rejected_records", rejected(), app_id="tap", version=3)
    assert Lake(tmp_path).committed("rejected_records", "tap") == 3


def test_compaction_changes_no_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(12):
        lake.append("rejected_records", rejected(str(number)), app_id="tap", version=number)
    lake.compact("rejected_records")
    reasons = Lake(tmp_path).read("rejected_records").column("reason").to_pylist()
    assert sorted(reasons) == sorted(str(number) for number in range(12))
    assert lake.committed("rejected_records", "tap") == 11


def test_a_column_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(LakeError, match="surprise"):
        conform(pa.table({"surprise": [1]}), REJECTED_RECORDS.schema)


def test_a_required_column_must_be_there() -> None:
    with pytest.raises(LakeError, match="received_at"):
        conform(pa.table({"source": ["x"]}), REJECTED_RECORDS.schema)


def test_a_corrupt_log_is_one_clear_line(tmp_path: Path) -> None:
    Lake(tmp_path).create()
    for entry in (tmp_path / "bronze/rejected_records/_delta_log").iterdir():
        if entry.is_file():
            entry.write_text("not json")
    with pytest.raises(UserError) as caught:
        Lake(tmp_path).append("rejected_records", rejected("a"))
    assert "rejected_records" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_root_that_cannot_be_made_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--lake"):
        Lake(tmp_path / "file" / "lake").create()


def test_every_table_is_made_with_its_columns_and_partitions(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    for name, spec in TABLES.items():
        table = lake.ensure(name)
        assert [field.name for field in table.schema().fields] == spec.schema.names
        assert tuple(table.metadata().partition_columns) == spec.partition_by


HOLDER = """
import pathlib, sys, time
from lake.files import only_one
with only_one(pathlib.Path(sys.argv[1]), "the tap"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_belongs_to_one_process_and_dies_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "tap.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"the tap is already running \\(process {holder.pid}\\)"),
            only_one(lock, "the tap"),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
    with only_one(lock, "the tap"):
        assert lock.read_text().strip() == str(os.getpid())


APPENDER = """
import sys
from tests.lake.test_store import rejected
from lake.store import Lake
lake = Lake(sys.argv[1])
done = lake.committed("rejected_records", "tap")
for number in range(-1 if done is None else done, 1000):
    lake.append("rejected_records", rejected(str(number + 1)), app_id="tap", version=number + 1)
    print(number + 1, flush=True)
"""


def test_a_writer_killed_at_any_instant_leaves_each_commit_once(tmp_path: Path) -> None:
    """Commits are numbered by the writer's position, so a restart goes on exactly where the last commit ended."""
    for after in (3, 1, 7, 2, 5):
        writer = subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert writer.stdout is not None
        for _ in range(after):
            assert writer.stdout.readline()
        time.sleep(0.003 * after)  # somewhere inside the next commit
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    lake = Lake(tmp_path)
    reasons = sorted(int(reason) for reason in lake.read("rejected_records").column("reason").to_pylist())
    assert reasons == list(range(len(reasons)))
    assert lake.committed("rejected_records", "tap") == reasons[-1]
    assert len(reasons) >= 18


def test_files_of_which_no_statistics_tell_their_age_are_scanned_by_their_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.ensure("rejected_records").alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "1"})
    lake = Lake(tmp_path)
    lake.append("rejected_records", rejected("a"))
    for since, expected in ((NOW, 1), (NOW.replace(year=2099), 0)):
        assert sum(batch.num_rows for batch in lake.scan("rejected_records", ["reason"], since)) == expected


def _not_utf8() -> pa.Array:
    return pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    )


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)


@pytest.mark.parametrize(
    ("column", "values"),
    [("raw", _not_utf8()), ("ingest_date", pa.array([2**31 - 1], pa.date32())), ("reason", pa.nulls(1, pa.string()))],
)
def test_rows_that_no_table_takes_are_told_from_a_store_that_takes_nothing(
    tmp_path: Path, column: str, values: pa.Array
) -> None:
    lake = Lake(tmp_path)
    bad = _with(rejected("bad"), column, values)
    lake.append("rejected_records", rejected("good"))
    with pytest.raises(UnwritableRows):
        lake.append("rejected_records", bad, app_id="tap", version=1)
    assert lake.append("rejected_records", rejected("good"), app_id="tap", version=1)
    assert [row["reason"] for row in lake.read("rejected_records").to_pylist()] == ["good", "good"]
    shutil.rmtree(lake.path("rejected_records"))
    with pytest.raises(LakeError) as raised:
        lake.append("rejected_records", rejected("good"), app_id="tap", version=2)
    assert not isinstance(raised.value, UnwritableRows)
