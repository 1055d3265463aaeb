"""Delta tables as Arrow data sets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

from lake.dataset import dataset, rows_of

HOME = Path(__file__).parents[2]


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    folder = tmp_path / "a lake ü"
    for start in (0, 10):
        rows = pa.table({"day": [f"2026-01-{start + 1:02}"] * 10, "n": list(range(start, start + 10))})
        write_deltalake(folder, rows, mode="append", partition_by=["day"])
    return DeltaTable(folder)


def test_rows_are_those_that_meet_the_conditions(table: DeltaTable) -> None:
    assert sorted(rows_of(table, ["n"]).column("n").to_pylist()) == list(range(20))
    assert rows_of(table, ["n"], [("n", ">=", 17)]).num_rows == 3
    assert rows_of(table, where=[("day", "=", "2026-01-11"), ("n", "<", 12)]).num_rows == 2


def test_files_that_cannot_hold_such_rows_are_left_out(table: DeltaTable) -> None:
    assert len(list(dataset(table).get_fragments())) == 2
    assert len(list(dataset(table, [("day", "=", "2026-01-11")]).get_fragments())) == 1


def test_no_thread_of_arrow_holds_an_object_of_python(table: DeltaTable) -> None:
    """Where one does, a process may be aborted as it leaves: 9 of 120 on a busy machine."""
    system = dataset(table).filesystem
    assert isinstance(system, SubTreeFileSystem) and isinstance(system.base_fs, LocalFileSystem)
    assert isinstance(table.to_pyarrow_dataset().filesystem, PyFileSystem), "deltalake's own would do by now"


@pytest.mark.slow
def test_a_process_that_leaves_right_after_reading_leaves_well(table: DeltaTable) -> None:
    program = "from deltalake import DeltaTable; from lake.dataset import rows_of; rows_of(DeltaTable(sys.argv[1]))"
    command = [sys.executable, "-c", f"import sys; {program}", table.table_uri]
    several = [subprocess.Popen(command, cwd=HOME) for _ in range(8)]
    assert [process.wait(timeout=100) for process in several] == [0] * 8
