"""The newest events of bronze, so many of them and no more; what the reading before had of them is not read again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lake.clock import TOLERANCE
from lake.errors import SojournError
from lake.follow import Follower
from lake.remote import Location
from lake.snapshot import Snapshot, read_file
from lake.tables import MESSAGE_EVENTS, OF_A_LIFE

#: What is read at most: so far back from the newest event, so many rows, in so many files.
WINDOW = timedelta(minutes=10)
MOST_ROWS, MOST_FILES = 200_000, 2_000
#: What a row takes in a file, where the log does not tell how many there are.
_ROW_BYTES = 20
_COLUMNS = (*OF_A_LIFE, "trace_id")
#: So many files that came since the last look are read as the log names them; of more, all are listed anew.
MOST_NEW = 50
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class _File(NamedTuple):
    rows: int
    newest: datetime | None


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
        self._follower = Follower(self._snapshot)
        self._files: dict[Location, _File] = {}
        self._parts: dict[Location, pa.Table] = {}

    def read(self, now: datetime) -> Newest | None:
        """The newest events as they are at ``now``; None where there is no table. Raises LakeError."""
        self._look()
        if self._snapshot.table is None:
            return None
        files = sorted(self._files.items(), key=lambda one: one[1].newest or _LONG_AGO, reverse=True)
        before, self._parts = self._parts, {}
        parts: list[pa.Table] = []
        rows, newest, since, known = 0, None, None, len(files)
        for number, (path, (count, last)) in enumerate(files):
            newest = newest or (None if last is None else min(last, now + TOLERANCE))
            is_old = last is not None and newest is not None and last < newest - WINDOW
            if number >= MOST_FILES or is_old or (parts and rows + count > MOST_ROWS):
                since, known = last, number + 1
                break
            try:
                part = before[path] if path in before else read_file(path, _COLUMNS)
            except SojournError:
                continue  # merged with others since, and removed
            parts.append(part)
            rows += part.num_rows
            if rows <= MOST_ROWS:  # one file may be as long as it likes
                self._parts[path] = part
        self._files = dict(files[:known])  # the first that was not read tells since when all were
        if not parts:
            return Newest(None, since, newest)
        whole = pa.concat_tables(parts, promote_options="permissive")
        return Newest(whole.slice(0, 2 * MOST_ROWS), since, newest)

    def _look(self) -> None:
        """Learn which files there are. Few new ones are read at once, as to list all takes as long as to read them."""
        changes = self._follower.changes()
        added = [path for change in changes for path in change.added]
        if len(added) <= MOST_NEW and not any(one.anew or one.removed or one.same_rows for one in changes):
            for path in reversed(added):
                try:
                    self._parts[path] = part = read_file(path, _COLUMNS)
                except SojournError:
                    continue
                last = pc.max(part["occurred_at"]).as_py() if "occurred_at" in part.column_names else None
                self._files[path] = _File(part.num_rows, last)
            return
        self._snapshot.version()
        if (table := self._snapshot.table) is not None:
            self._files = _listed(self._snapshot.path, pa.table(table.get_add_actions(flatten=True)))

    def forget(self) -> None:
        """Let go of what was read."""
        self._follower.forget()
        self._files, self._parts = {}, {}


def _listed(folder: Location, actions: pa.Table) -> dict[Location, _File]:
    """The files below ``folder`` that ``actions`` tell of."""
    names = actions.column_names
    newest = actions["max.occurred_at"].to_pylist() if "max.occurred_at" in names else [None] * actions.num_rows
    rows = actions["num_records"].to_pylist() if "num_records" in names else [None] * actions.num_rows
    return {
        folder / unquote(path): _File(
            count if count is not None else size // _ROW_BYTES,
            last.replace(tzinfo=UTC) if last is not None and last.tzinfo is None else last,
        )
        for path, size, count, last in zip(
            actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), rows, newest, strict=True
        )
    }
