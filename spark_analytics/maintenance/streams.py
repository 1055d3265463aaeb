"""How far the streams have read that follow the lake's tables: what they have not read must stay.

Spark keeps that beside the lake (``state/checkpoints``): for each batch the version of the table at which it ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable

from lake.log import log_entry
from lake.remote import Location
from lake.store import Lake
from spark_analytics.catching_up.gaps import Gap, Gaps
from spark_analytics.catching_up.log import committed_at
from spark_analytics.catching_up.places import Checkpoint


@dataclass(frozen=True, slots=True)
class Needed:
    """What streams still need of one table: files that were removed since a time, and the log from a version on.

    None: nothing.
    """

    files_since: datetime | None = None
    log_from: int | None = None


@dataclass(frozen=True, slots=True)
class _Position:
    """The version at which a stream goes on, and the one from which it asks the log when it starts: it plans the batch
    that it finished last once more, without reading it. ``begins``: it still reads the table as it was at that version.
    """

    version: int
    begins: bool
    log_from: int


def needed(root: Path, table: DeltaTable, log: Location) -> Needed:
    """What the streams with checkpoints in the lake at ``root``, and the history that was deferred, need of ``table``,
    whose log is the folder ``log``.
    """
    identity, newest = str(table.metadata().id), table.version()
    gaps = Gaps(Lake(root))
    # Before and after, or one that is opened or closed meanwhile could be seen neither as a gap nor as a checkpoint.
    put_off = gaps.open()
    positions = [position for folder in _checkpoints(root) if (position := _position(folder, identity)) is not None]
    positions += [_position_in(gap) for gap in (*put_off, *gaps.open()) if gap.table_id == identity]
    files = [
        committed_at(log.parent, position.version) if position.begins else _first_unread(log, position.version, newest)
        for position in positions
    ]
    return Needed(
        min(filter(None, files), default=None), min((position.log_from for position in positions), default=None)
    )


def log_needed(checkpoint: Path, table: str) -> int | None:
    """The version of the table with this id from which the stream with ``checkpoint`` asks the log when it starts; None
    where it has not begun.
    """
    position = _position(Checkpoint(checkpoint), table)
    return None if position is None else position.log_from


def _checkpoints(root: Path) -> list[Checkpoint]:
    folders = (root / "state" / "checkpoints").glob("**/offsets")
    return [Checkpoint(path.parent) for path in folders if path.is_dir()]


def _position(checkpoint: Checkpoint, table: str) -> _Position | None:
    """Where a stream would go on in the table with this id; None if it does not read that table, or not yet."""
    planned = checkpoint.planned()
    if not planned:
        return None
    # A batch that was planned and not finished begins where the last finished one ended.
    last = max(set(checkpoint.finished()).intersection(planned), default=planned[0])
    offset = checkpoint.offset(last, table)
    if offset is None:
        return None
    before = checkpoint.offset(last - 1, table) if last - 1 in planned else None
    version = offset.place.version
    asked = min(version, (before or offset).place.version)
    return _Position(version, offset.begins, max(0, asked - 1))


def _position_in(gap: Gap) -> _Position:
    """Where history goes on. What is newer is kept for its sake, too, until the stream that reads it has begun."""
    return _Position(gap.begins.version, gap.whole, gap.begins.version)


def _first_unread(log: Location, version: int, newest: int) -> datetime | None:
    """When the first commit from ``version`` on that added data was made; None if there is none."""
    for number in range(version, newest + 1):
        try:
            actions = map(json.loads, log_entry(log.parent, number).read_text(encoding="utf-8").splitlines())
            if not any(action.get("add", {}).get("dataChange") for action in actions):
                continue
        except FileNotFoundError:
            pass
        return committed_at(log.parent, number)  # its log is gone already: at least no more goes
    return None
