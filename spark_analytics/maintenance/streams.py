"""How far the streams have read that follow the lake's tables: what they have not read must stay.

Spark keeps that beside the lake (``state/checkpoints``): for each batch the version of the table at which it ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lake.errors import UserError


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


def needed(root: Path, table: DeltaTable, log: Path) -> Needed:
    """What the streams with checkpoints in the lake at ``root`` need of ``table``, whose log is the folder ``log``."""
    identity, newest = str(table.metadata().id), table.version()
    positions = [position for folder in _checkpoints(root) if (position := _position(folder, identity)) is not None]
    files = [
        _committed_at(log, position.version) if position.begins else _first_unread(log, position.version, newest)
        for position in positions
    ]
    return Needed(
        min(filter(None, files), default=None), min((position.log_from for position in positions), default=None)
    )


def _checkpoints(root: Path) -> list[Path]:
    return [path.parent for path in (root / "state" / "checkpoints").glob("**/offsets") if path.is_dir()]


def _position(checkpoint: Path, table: str) -> _Position | None:
    """Where a stream would go on in the table with this id; None if it does not read that table, or not yet."""
    try:
        planned = sorted(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
        finished = {int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")}
        if not planned:
            return None
        # A batch that was planned and not finished begins where the last finished one ended.
        last = max(finished.intersection(planned), default=planned[0])
        offset = _offset(checkpoint, last, table)
        if offset is None:
            return None
        before = _offset(checkpoint, last - 1, table) if last - 1 in planned else None
        version = int(offset["reservoirVersion"])
        asked = min(version, int((before or offset)["reservoirVersion"]))
        return _Position(version, bool(offset.get("isStartingVersion")), max(0, asked - 1))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the checkpoint {checkpoint} cannot be read: {error}", "start `sojourn analyze` once: it says what to do"
        ) from error


def _offset(checkpoint: Path, batch: int, table: str) -> dict[str, Any] | None:
    """Where ``batch`` ended in the table with this id: after two lines of Spark's own, one of JSON for each source."""
    for line in (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]:
        offset: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if offset.get("reservoirId") == table:
            return offset
    return None


def _entry(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _committed_at(log: Path, version: int) -> datetime:
    try:
        return datetime.fromtimestamp(_entry(log, version).stat().st_mtime, UTC)
    except FileNotFoundError:  # its log is gone already: at least no more goes
        return datetime.fromtimestamp(0, UTC)


def _first_unread(log: Path, version: int, newest: int) -> datetime | None:
    """When the first commit from ``version`` on that added data was made; None if there is none."""
    for number in range(version, newest + 1):
        try:
            actions = map(json.loads, _entry(log, number).read_text(encoding="utf-8").splitlines())
            if not any(action.get("add", {}).get("dataChange") for action in actions):
                continue
        except FileNotFoundError:
            pass
        return _committed_at(log, number)
    return None
