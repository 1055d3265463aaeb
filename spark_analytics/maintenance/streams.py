"""How far the streams have read that follow the lake's tables: what they have not read must stay.

Spark keeps that beside the lake (``state/checkpoints``): for each batch the version of the table at which it ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable

from lake.errors import UserError


@dataclass(frozen=True, slots=True)
class Needed:
    """What streams still need of one table: files removed, and log entries made, since these times; None: nothing."""

    files_since: datetime | None = None
    log_since: datetime | None = None


def needed(root: Path, table: DeltaTable, log: Path) -> Needed:
    """What the streams with checkpoints in the lake at ``root`` need of ``table``, whose log is the folder ``log``."""
    positions = [position for folder in _checkpoints(root) if (position := _position(folder, table)) is not None]
    if not positions:
        return Needed()
    version = min(positions)
    return Needed(_first_unread(log, version, table.version()), _committed_at(log, version, table.version()))


def _checkpoints(root: Path) -> list[Path]:
    return [path.parent for path in (root / "state" / "checkpoints").glob("**/offsets") if path.is_dir()]


def _position(checkpoint: Path, table: DeltaTable) -> int | None:
    """The version of ``table`` from which a stream would go on; None if it does not read that table, or not yet."""
    try:
        offsets = {int(path.name): path for path in (checkpoint / "offsets").glob("[0-9]*")}
        commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if int(path.name) in offsets]
        if not offsets:
            return None
        # A batch that was planned and not finished begins where the last finished one ended.
        lines = offsets[max(commits, default=min(offsets))].read_text(encoding="utf-8").splitlines()
        for line in lines[2:]:
            offset = json.loads(line) if line.startswith("{") else {}
            if offset.get("reservoirId") == str(table.metadata().id):
                return int(offset["reservoirVersion"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the checkpoint {checkpoint} cannot be read: {error}", "start `sojourn analyze` once: it says what to do"
        ) from error
    return None


def _entry(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _committed_at(log: Path, version: int, newest: int) -> datetime:
    """When the version before ``version`` was committed: a stream asks for that one when it starts again."""
    for number in (version - 1, version):
        try:
            return datetime.fromtimestamp(_entry(log, min(max(number, 0), newest)).stat().st_mtime, UTC)
        except FileNotFoundError:
            continue
    return datetime.fromtimestamp(0, UTC)  # its log is gone already: at least no more of it goes


def _first_unread(log: Path, version: int, newest: int) -> datetime | None:
    """When the first commit from ``version`` on that added data was made; None if there is none."""
    for number in range(version, newest + 1):
        try:
            entry = _entry(log, number)
            actions = map(json.loads, entry.read_text(encoding="utf-8").splitlines())
            if any(action.get("add", {}).get("dataChange") for action in actions):
                return datetime.fromtimestamp(entry.stat().st_mtime, UTC)
        except FileNotFoundError:
            return datetime.fromtimestamp(0, UTC)
    return None
