"""Log entries of our own: every reader of Delta understands them, and no other writer is overwritten or overlooked."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lake import appending
from lake.appending import Appender
from lake.log import log_entry
from lake.store import Lake, LakeError
from lake.tables import MESSAGE_EVENTS, QUEUE_SAMPLES, REJECTED_RECORDS
from tests.support.waiting import wait_until

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
WRITER = """
import sys
from tests.lake.test_appending import rejected
from lake.store import Lake
lake = Lake(sys.argv[1])
for number in range(30):
    assert lake.append("rejected_records", rejected(f"{sys.argv[2]}-{number}"), app_id=sys.argv[2], version=number)
    if number == 15:
        lake.compact("rejected_records")
"""


def rejected(*reasons: str, day: date = date(2026, 1, 2)) -> pa.Table:
    row = {"received_at": NOW, "source": "test", "raw": "", "count": 1, "ingested_at": NOW, "ingest_date": day}
    return pa.Table.from_pylist([row | {"reason": reason} for reason in reasons], schema=REJECTED_RECORDS.schema)


def reasons(lake: Lake) -> list[str]:
    return sorted(Lake(lake.root).read("rejected_records").column("reason").to_pylist())


def actions(lake: Lake, version: int) -> list[dict[str, Any]]:
    text = log_entry(lake.path("rejected_records"), version).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_processes_that_append_at_once_lose_nothing(lake: Lake) -> None:
    lake.ensure("rejected_records")
    command = [sys.executable, "-c", WRITER, str(lake.root)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    wait_until(lambda: all(writer.poll() is not None for writer in writers), "the writers to end", seconds=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert reasons(lake) == sorted(f"{name}-{number}" for name in "abc" for number in range(30))
    assert [Lake(lake.root).committed("rejected_records", name) for name in "abc"] == [29, 29, 29]


def test_rows_of_several_days_go_to_their_partitions_in_one_commit(lake: Lake) -> None:
    rows = pa.concat_tables([rejected("old", day=date(2026, 1, 1)), rejected("new"), rejected("newer")])
    lake.append("rejected_records", rows, app_id="tap", version=1)
    adds = [action["add"] for action in actions(lake, 1) if "add" in action]
    assert sorted(add["partitionValues"]["ingest_date"] for add in adds) == ["2026-01-01", "2026-01-02"]
    told = Lake(lake.root).read("rejected_records", where=[("ingest_date", ">=", "2026-01-02")])
    assert sorted(told.column("reason").to_pylist()) == ["new", "newer"]
    assert told.schema.equals(REJECTED_RECORDS.schema)


@pytest.mark.parametrize("spec", [MESSAGE_EVENTS, QUEUE_SAMPLES], ids=lambda spec: spec.name)
def test_what_was_appended_is_read_back_by_deltalake_and_duckdb(lake: Lake, spec: Any) -> None:
    """Whatever its type: nulls, maps, floats, texts longer than a bound."""
    row = {one.name: _value(one.type) for one in spec.schema}
    bare = {one.name: None if one.nullable else row[one.name] for one in spec.schema}
    rows = pa.Table.from_pylist([row, bare], schema=spec.schema)
    lake.append(spec.name, rows)
    assert DeltaTable(str(lake.path(spec.name))).to_pyarrow_table().select(spec.schema.names).equals(rows)
    [file] = lake.path(spec.name).rglob("*.parquet")
    told = duckdb.sql(f"SELECT queue FROM read_parquet('{file}') ORDER BY ALL").fetchall()
    assert told == [(row["queue"],)] * 2
    [stats] = [json.loads(json.loads(line)["add"]["stats"]) for line in _lines(lake, spec.name) if '"add"' in line]
    assert stats["numRecords"] == 2
    assert stats["maxValues"]["ingested_at"] == "2026-01-02T03:04:05.678901Z"


def test_what_another_writer_did_meanwhile_is_followed(lake: Lake) -> None:
    lake.append("rejected_records", rejected("a"), app_id="tap", version=1)
    other = Lake(lake.root)
    other.append("rejected_records", rejected("b"), app_id="tap", version=2)
    other.ensure("rejected_records").alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert lake.committed("rejected_records", "tap") == 2
    assert not lake.append("rejected_records", rejected("b again"), app_id="tap", version=2)
    assert lake.append("rejected_records", rejected("c"), app_id="tap", version=3)
    assert reasons(lake) == ["a", "b", "c"]


def test_a_log_that_was_cleaned_up_meanwhile_is_not_written_into_its_past(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append("rejected_records", rejected("a"), app_id="tap", version=1)
    other = Lake(lake.root)
    for number in range(2, 6):
        other.append("rejected_records", rejected(str(number)), app_id="tap", version=number)
    table = other.ensure("rejected_records")
    table.create_checkpoint()
    for version in range(table.version()):
        log_entry(lake.path("rejected_records"), version).unlink()
    monkeypatch.setattr(appending, "TRUSTED_SECONDS", -1.0)  # as if so long had passed
    assert lake.append("rejected_records", rejected("z"), app_id="tap", version=6)
    assert log_entry(lake.path("rejected_records"), table.version() + 1).exists()
    assert reasons(lake) == ["2", "3", "4", "5", "a", "z"]


def test_where_files_cannot_be_linked_commits_are_made_without(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(appending.os, "link", refuse)
    for number in range(3):
        assert lake.append("rejected_records", rejected(str(number)), app_id="tap", version=number)
    assert not lake.append("rejected_records", rejected("2"), app_id="tap", version=2)
    assert reasons(lake) == ["0", "1", "2"]
    assert not list(lake.path("rejected_records").glob("_delta_log/*.tmp"))


def test_a_table_that_asks_more_of_its_writers_is_left_to_deltalake(lake: Lake) -> None:
    lake.append("rejected_records", rejected("a"), app_id="tap", version=1)
    there = Lake(lake.root).ensure("rejected_records")
    there.alter.add_constraint({"counted": "count > 0"})  # a newer protocol
    assert lake.append("rejected_records", rejected("b"), app_id="tap", version=2)
    assert reasons(lake) == ["a", "b"]
    assert any(action.get("commitInfo", {}).get("engineInfo", "").startswith("delta-rs") for action in actions(lake, 3))
    assert not Appender(Lake(lake.root).ensure("rejected_records"), lake.path("rejected_records")).fit


def test_a_damaged_entry_is_one_clear_line_and_no_file_is_left(lake: Lake) -> None:
    lake.append("rejected_records", rejected("a"), app_id="tap", version=1)
    files = set(lake.path("rejected_records").rglob("*.parquet"))
    log_entry(lake.path("rejected_records"), 2).write_text('{"add":', encoding="utf-8")
    with pytest.raises(LakeError, match="rejected_records"):
        lake.append("rejected_records", rejected("b"), app_id="tap", version=2)
    assert set(lake.path("rejected_records").rglob("*.parquet")) == files


def _lines(lake: Lake, name: str) -> list[str]:
    return log_entry(lake.path(name), 1).read_text(encoding="utf-8").splitlines()


def _value(kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return NOW
    if pa.types.is_date(kind):
        return NOW.date()
    if pa.types.is_map(kind):
        return [("depth", "nobody told")]
    if pa.types.is_list(kind):
        return [_value(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in kind}
    if pa.types.is_string(kind):
        return "é" * 80
    return True if pa.types.is_boolean(kind) else 1.5 if pa.types.is_floating(kind) else 7
