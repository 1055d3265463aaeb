"""The newest events of bronze, so many of them and no more; what the reading before had of them is not read again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from lake.clock import TOLERANCE
from lake.errors import SojournError
from lake.snapshot import Snapshot, read_file
from lake.tables import MESSAGE_EVENTS, OF_A_LIFE

#: What is read at most: so far back from the newest event, so many rows, in so many files.
WINDOW = timedelta(minutes=10)
MOST_ROWS, MOST_FILES = 200_000, 2_000
#: What a row takes in a file, where the log does not tell how many there are.
_ROW_BYTES = 20
_COLUMNS = (*OF_A_LIFE, "trace_id")


@dataclass(frozen=True, slots=True)
class Newest:
    """What was read: ``rows``, None where there are none. Events before ``since`` were not read; None = all were."""

    rows: pa.Table | None
    since: datetime | None
    newest: datetime | None


class NewestEvents:
    """Holds the rows that it read last, at most MOST_ROWS. Belongs to one thread."""

    def __init__(self, root: Path) -> None:
        self._snapshot = Snapshot(MESSAGE_EVENTS, root)
        self._parts: dict[str, pa.Table] = {}

    def read(self, now: datetime) -> Newest | None:
        """The newest events as they are at ``now``; None where there is no table. Raises LakeError."""
        if self._snapshot.version() < 0 or self._snapshot.table is None:
            return None
        files = _newest_first(pa.table(self._snapshot.table.get_add_actions(flatten=True)))
        before, self._parts = self._parts, {}
        parts: list[pa.Table] = []
        rows, newest, since = 0, None, None
        for number, (path, count, last) in enumerate(files):
            newest = newest or (None if last is None else min(last, now + TOLERANCE))
            is_old = last is not None and newest is not None and last < newest - WINDOW
            if number >= MOST_FILES or is_old or (parts and rows + count > MOST_ROWS):
                since = last
                break
            try:
                part = before[path] if path in before else read_file(self._snapshot.path / path, _COLUMNS)
            except SojournError:
                continue  # merged with others since, and removed
            parts.append(part)
            rows += part.num_rows
            if rows <= MOST_ROWS:  # one file may be as long as it likes
                self._parts[path] = part
        if not parts:
            return Newest(None, since, newest)
        whole = pa.concat_tables(parts, promote_options="permissive")
        return Newest(whole.slice(0, 2 * MOST_ROWS), since, newest)

    def forget(self) -> None:
        """Let go of what was read."""
        self._parts = {}


def _newest_first(actions: pa.Table) -> list[tuple[str, int, datetime | None]]:
    """Each file's path, rows and newest event."""
    names = actions.column_names
    newest = actions["max.occurred_at"].to_pylist() if "max.occurred_at" in names else [None] * actions.num_rows
    rows = actions["num_records"].to_pylist() if "num_records" in names else [None] * actions.num_rows
    files = [
        (
            unquote(path),
            count if count is not None else size // _ROW_BYTES,
            last.replace(tzinfo=UTC) if last is not None and last.tzinfo is None else last,
        )
        for path, size, count, last in zip(
            actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), rows, newest, strict=True
        )
    ]
    return sorted(files, key=lambda file: file[2] or datetime.min.replace(tzinfo=UTC), reverse=True)
