"""The files that a Delta table's log tells of, in the order in which a stream would read them. No JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from lake.errors import UserError, first_line
from lake.log import log_entry
from lake.remote import Location, delta_table
from spark_analytics.catching_up.places import Place

_REBUILD = "restore the table's _delta_log, or compute gold anew: `sojourn analyze --rebuild`"
#: How lines of the log begin that are about files; the others are many, and not asked.
_OF_FILES = ('{"add"', '{"remove"')
_OF_THE_TABLE = ('{"metaData"', '{"protocol"')
#: So many commits at most has a table that is young: files are not rewritten before there are more.
_YOUNG = 100
_ROWS = re.compile(r'"numRecords": ?(\d+)')


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table; whoever has read it, and all before it, stands at ``behind``."""

    path: Location
    size_bytes: int
    rows: int | None
    behind: Place


def in_log(table: Location, version: int) -> bool:
    """Whether the log still has the commit of ``version``."""
    return log_entry(table, version).exists()


def only_adds(log: Location, first: int, last: int) -> bool:
    """Whether the commits from ``first`` to ``last`` are there, and none changes what the table is."""
    return not _any_line(log, range(first, last + 1), _OF_THE_TABLE)


def is_young(table: Location) -> bool:
    """Whether the log tells of all that was ever in the table, in few commits, which only added to it."""
    newest = next((version for version in range(_YOUNG) if not in_log(table, version)), _YOUNG) - 1
    return 0 <= newest < _YOUNG - 1 and not _any_line(table, range(1, newest + 1), (*_OF_THE_TABLE, '{"remove"'))


def _any_line(log: Location, versions: Iterable[int], beginnings: tuple[str, ...]) -> bool:
    """Whether a line of those entries begins so, or one of them is not there."""
    try:
        return any(
            line.startswith(beginnings)
            for version in versions
            for line in log_entry(log, version).read_text(encoding="utf-8").splitlines()
        )
    except FileNotFoundError:
        return True


def newest_data(table: Location, newest: int, until: int) -> int | None:
    """The last version from ``newest`` back to ``until`` that adds data; None if the log tells of none."""
    for version in range(newest, until - 1, -1):
        entry = log_entry(table, version)
        if not entry.exists():
            return None
        if _added(entry):
            return version
    return None


def committed_at(table: Location, version: int) -> datetime:
    """When ``version`` was committed; where the log has it no more, before all times."""
    try:
        return datetime.fromtimestamp(log_entry(table, version).stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.fromtimestamp(0, UTC)


def data_files(table: Location, begins: Place, until: int, log: Location | None = None) -> Iterator[DataFile]:
    """The files that are added from ``begins`` on and before version ``until``. UserError where the log has a hole.

    ``log``: the folder whose log is read, if not that of the ``table``.
    """
    for version in range(begins.version, until):
        added = _added(log_entry(table if log is None else log, version))
        for index, action in enumerate(added):
            if Place(version, index) > begins:
                rows = _ROWS.search(action.get("stats") or "")
                behind = Place(version + 1) if index + 1 == len(added) else Place(version, index)
                path = table / unquote(str(action["path"]))
                yield DataFile(path, int(action["size"]), int(rows[1]) if rows else None, behind)


def all_files(table: Location, begins: Place) -> Iterator[DataFile]:
    """The files that hold the table as it was at the version of ``begins``, oldest first, counted as if that version
    had added them all, from ``begins`` on. UserError where that cannot be told any more.
    """
    version = begins.version
    try:
        adds = pa.table(delta_table(table, version).get_add_actions(flatten=True))
    except (DeltaError, OSError) as error:
        raise UserError(f"version {version} of {table} cannot be read: {first_line(error)}", _REBUILD) from error
    adds = adds.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    columns = (adds.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    for index, (path, size, rows) in enumerate(zip(*columns, strict=True)):
        if Place(version, index) > begins:
            behind = Place(version + 1) if index + 1 == adds.num_rows else Place(version, index)
            yield DataFile(table / unquote(path), int(size), rows, behind)


def _added(entry: Location) -> list[dict[str, Any]]:
    """The files by which a commit adds data. UserError where it replaces data, too: no stream could read on there."""
    try:
        lines = entry.read_text(encoding="utf-8").splitlines()
        actions = [json.loads(line) for line in lines if line.startswith(_OF_FILES)]
    except (OSError, ValueError) as error:
        raise UserError(f"{entry} cannot be read: {error}", _REBUILD) from error
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    if added and any(action.get("remove", {}).get("dataChange") for action in actions):
        raise UserError(f"{entry.parent.parent} was rewritten by {entry.name}: it is only ever appended to", _REBUILD)
    return added
