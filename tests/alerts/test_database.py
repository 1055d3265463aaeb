"""The alert process's file, opened by several threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
