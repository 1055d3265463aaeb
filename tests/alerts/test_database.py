"""The alert process's file, opened by several threads at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from actuators.undo_log import UndoLog
from alerts.control.state import State
from alerts.store.database import connect


def test_threads_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    def opened(path: Path) -> int:
        connection = connect(path)
        try:
            return int(connection.execute("SELECT COUNT(*) FROM meta").fetchone()[0])
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(10):
            assert list(pool.map(opened, [tmp_path / f"{attempt}.sqlite"] * 8)) == [1] * 8


#: Another process looks at the database at ``sys.argv[1]``, and is the last to leave for all that it can see.
LOOK = (
    "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA user_version').fetchall(); db.close()"
)


@pytest.mark.parametrize(
    ("name", "open_it"),
    [
        ("alerts.sqlite", lambda path: connect(path)),
        ("control.sqlite", lambda path: State(path.parent)),
        ("actuators.sqlite", lambda path: UndoLog(path.parent)),
    ],
)
def test_a_log_stays_while_one_has_the_file_open_though_others_come_and_go(
    tmp_path: Path, name: str, open_it: Callable[[Path], object]
) -> None:
    path = tmp_path / "own" / name
    path.parent.mkdir(mode=0o700)
    first, second = open_it(path), open_it(path)
    (path,) = path.parent.glob("*.sqlite")
    log = path.with_name(f"{path.name}-wal")
    assert log.exists()
    subprocess.run([sys.executable, "-c", LOOK, str(path)], check=True)
    assert log.exists(), "taken from under those who write to it"
    del first, second


def test_what_is_written_after_others_have_left_is_there(tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    with closing(connect(path)) as writer:
        connect(path).close()
        subprocess.run([sys.executable, "-c", LOOK, str(path)], check=True)
        writer.execute("INSERT INTO meta VALUES ('told', 'yes')")
        with closing(sqlite3.connect(path)) as reader:
            assert reader.execute("SELECT value FROM meta WHERE key = 'told'").fetchall() == [("yes",)]
