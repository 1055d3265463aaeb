"""Rows laid down piece by piece in a file that one commit adds to its table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.checkpoints import CHECKPOINT_INTERVAL
from lake.staged import LOOKED_AT, Staged, columns_of
from lake.store import Lake
from lake.tables import MARKS, PARTIALS, TABLES
from tests.support.waiting import wait_until

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def marks(*numbers: int, **more: Any) -> pa.Table:
    rows = [
        {
            "broker": "nats",
            "queue": f"q{number}",
            "subscriber": "",
            "tenant": "acme",
            "message_id": f"m{number}",
            "event_type": "failed",
            "attempt": number or None,
            "occurred_at": START + timedelta(seconds=number, microseconds=7),
            **more,
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, MARKS.schema)


def entry(lake: Lake) -> dict[str, Any]:
    """What the log says of the table's only file."""
    [added] = pa.table(lake.ensure("marks").get_add_actions(flatten=True)).to_pylist()
    return dict(added)


def test_nothing_is_seen_before_the_commit_and_all_of_it_after(lake: Lake) -> None:
    staged = lake.stage("marks")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(staged.append, [marks(number, number + 100) for number in range(20)]))
    assert lake.read("marks").num_rows == 0
    assert lake.add("marks", staged, app_id="query", version=3)
    found = Lake(lake.root).read("marks")
    assert found.schema.equals(MARKS.schema)
    expected = marks(*range(20), *range(100, 120))
    assert found.sort_by("message_id").to_pylist() == expected.sort_by("message_id").to_pylist()
    assert lake.committed("marks", "query") == 3


def test_a_batch_that_is_there_already_is_not_added_again(lake: Lake) -> None:
    lake.append("marks", marks(1), app_id="query", version=3)
    staged = lake.stage("marks")
    staged.append(marks(2))
    assert not lake.add("marks", staged, app_id="query", version=3)
    assert lake.read("marks").num_rows == 1
    assert len(list(lake.path("marks").glob("*.parquet"))) == 1, "its file is gone"


def test_a_batch_of_nothing_is_noted(lake: Lake) -> None:
    staged = lake.stage("marks")
    staged.append(marks())
    assert lake.add("marks", staged, app_id="query", version=0)
    assert lake.committed("marks", "query") == 0
    assert lake.ensure("marks").file_uris() == []


def test_the_log_tells_what_readers_narrow_down_by(lake: Lake) -> None:
    staged = lake.stage("marks")
    staged.append(marks(5, 9))
    staged.append(marks(0, 7))
    lake.add("marks", staged, app_id="query", version=0)
    told = entry(lake)
    assert (told["num_records"], told["min.queue"], told["max.queue"]) == (4, "q0", "q9")
    assert (told["min.attempt"], told["max.attempt"], told["null_count.attempt"]) == (5, 9, 1)
    assert (told["min.occurred_at"], told["max.occurred_at"]) == (
        START + timedelta(microseconds=7),
        START + timedelta(seconds=9, microseconds=7),
    )
    assert "min.age_seconds" not in told, "of the first columns alone"


def test_bounds_that_are_long_or_unknown_are_left_out(lake: Lake) -> None:
    staged = lake.stage("marks")
    staged.append(marks(1, message_id="x" * 1_000_000, attempt=None))
    lake.add("marks", staged, app_id="query", version=0)
    told = entry(lake)
    assert told.get("max.message_id") is None and told.get("max.attempt") is None
    assert (told["max.queue"], told["null_count.attempt"]) == ("q1", 1)
    log = lake.path("marks") / "_delta_log" / f"{lake.version('marks'):020}.json"
    assert log.stat().st_size < 5_000
    assert lake.read("marks").column("message_id").to_pylist() == ["x" * 1_000_000]


def test_what_is_dropped_leaves_no_file(lake: Lake) -> None:
    for rows in (marks(1), marks()):
        staged = lake.stage("marks")
        staged.append(rows)
        staged.drop()
    assert not list(lake.path("marks").glob("*.parquet"))


def test_commits_leave_checkpoints_as_those_of_appends_do(lake: Lake) -> None:
    for version in range(CHECKPOINT_INTERVAL + 1):
        staged = lake.stage("marks")
        staged.append(marks(version))
        lake.add("marks", staged, app_id="query", version=version)
    log = lake.path("marks")
    wait_until(lambda: list(log.glob("_delta_log/*.checkpoint.parquet")), "a checkpoint, beside the commits")
    assert Lake(lake.root).read("marks").num_rows == CHECKPOINT_INTERVAL + 1


def test_a_change_of_the_table_meanwhile_does_not_hinder(lake: Lake, tmp_path: Path) -> None:
    lake.append("marks", marks(1))
    lake.append("marks", marks(2))
    staged = lake.stage("marks")
    staged.append(marks(3))
    other = Lake(lake.root)
    other.compact("marks")
    other.ensure("marks").alter.set_table_properties({"delta.logRetentionDuration": "interval 4321 seconds"})
    assert lake.add("marks", staged, app_id="query", version=0)
    assert lake.read("marks").num_rows == 3


def test_a_full_disk_is_said_so(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = lake.stage("marks")
    staged._path = Path("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        for _ in range(50):
            staged.append(marks(*range(1_000), message_id="x" * 10_000))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_column_of_a_file_is_found_by_the_field_that_it_holds(name: str) -> None:
    schema, written = TABLES[name].schema, pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), written)
    columns = pq.ParquetFile(pa.BufferReader(written.getvalue())).metadata.schema
    assert [columns.column(number).path for number in range(len(columns))] == [
        path for field in schema for path in columns_of(field)
    ]


@pytest.mark.parametrize("count", [10, LOOKED_AT])
def test_measured_times_of_which_hardly_any_comes_twice_have_no_dictionary(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(1)
    told: dict[str, Any] = {
        "queue": pa.array([f"q{number % 7}" for number in range(count)]),
        "processing_sum": rng.lognormal(size=count),
        "processing_max": rng.integers(1, 9, count) / 8,
        "processing_histogram": pa.array([[{"index": number % 5, "count": 1}] for number in range(count)]),
    }
    schema = pa.schema([PARTIALS.schema.field(name) for name in told])
    rows = pa.table(told).cast(schema)
    staged = Staged(tmp_path, schema, ())
    staged.append(rows)
    [added] = staged.finished()
    file = pq.ParquetFile(tmp_path / added.path)
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    plain = {column.path_in_schema for column in columns if not column.has_dictionary_page}
    assert plain == ({"processing_sum"} if count == LOOKED_AT else set())
    assert any(column.has_dictionary_page for column in columns if "processing_histogram" in column.path_in_schema)
    assert file.read().equals(rows)
