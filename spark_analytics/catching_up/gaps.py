"""Open gaps: stretches of message_events that were deferred so that the newest events come first.

A gap takes over from the query that would have read it: that query's number, its next batch, its notes of attempts. How
far it is filled stands in a note of its own, beside the checkpoints; that it is open or filled, for readers, in the
table ``gaps``. The note comes first and goes last.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.errors import UserError
from lake.files import write_atomically
from lake.store import Lake
from lake.tables import GAPS, MESSAGE_EVENTS
from spark_analytics.catching_up.places import Checkpoint, Place
from spark_analytics.gold import REBUILD, Gold, checkpoint_path

#: Checkpoints of the query over events: the first, and those that begin behind a gap.
_CHECKPOINT = re.compile(r"events(?:-from-(\d+))?")
_OPENED, _FILLED = 0, 1  # commits of a gap to the table


@dataclass(frozen=True, slots=True)
class Gap:
    """What was deferred, and how far it is read since.

    ``number`` is the batch at work or next; it begins at ``begins`` and, once that is decided, ends at ``ends``.
    ``whole``: it is the table as it was just before ``starts``, not the commits until then. ``begun``: the query that
    reads what is newer, from version ``starts`` on, has a checkpoint.
    """

    gap_id: str
    table_id: str
    first_version: int
    starts: int
    whole: bool
    size_bytes: int | None
    events: int | None
    attempts: str
    number: int
    begins: Place
    ends: Place | None = None
    begun: bool = False
    read_bytes: int = 0

    def planned(self, ends: Place) -> Gap:
        """The gap with the end of its next batch decided."""
        return replace(self, ends=ends)

    def advanced(self, size_bytes: int) -> Gap:
        """The gap with that batch, of ``size_bytes``, in gold."""
        assert self.ends is not None
        read = self.read_bytes + size_bytes
        return replace(self, number=self.number + 1, begins=self.ends, ends=None, read_bytes=read)


@dataclass(frozen=True, slots=True)
class Live:
    """The query over the newest events: its checkpoint, and the version at which it starts; None: with all there is."""

    checkpoint: Path
    starts: int | None

    def begun(self) -> bool:
        """Whether it has planned a batch: from then on its checkpoint alone says where it goes on."""
        return bool(Checkpoint(self.checkpoint).planned())


def attempts_of(checkpoint: Path) -> Path:
    """Where the query with this checkpoint keeps its notes of attempts."""
    return checkpoint.with_name(f"{checkpoint.name}-attempts")


class Gaps:
    """The open gaps of one lake. Belongs to one thread, as its lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        # Not by way of the lake, which would make folders: maintenance looks, and may only look.
        self._home = lake.root / "state" / "checkpoints" / "analyze"
        self._notes = self._home / "gaps"

    def open(self) -> list[Gap]:
        """Those that are not filled yet, oldest first. UserError for a note that cannot be read."""
        found = (_read(path) for path in self._notes.glob("*.json"))
        return sorted((gap for gap in found if gap is not None), key=lambda gap: gap.starts)

    def live(self) -> Live:
        """The query that reads on, or will: the one behind the last gap."""
        starts = max([gap.starts for gap in self.open()] + [number for _, number in self._checkpoints()], default=0)
        name = f"events-from-{starts}" if starts else "events"
        return Live(checkpoint_path(self._lake.root, name), starts or None)

    def write(self, gap: Gap) -> None:
        """Note the gap as it is now."""
        write_atomically(self._notes / f"{gap.gap_id}.json", json.dumps(asdict(gap)))

    def tell(self) -> None:
        """Let the table tell of every gap that is open, and drop checkpoints that gaps have taken over from.

        To be called before anything is read that is newer; again after a crash.
        """
        for gap in self.open():
            self._commit(gap, _OPENED)
        live = self.live()
        for path, number in self._checkpoints():
            if number < (live.starts or 0):
                shutil.rmtree(path)

    def close(self, gap: Gap) -> None:
        """All of the gap is in gold: tell so, and forget it."""
        self._commit(gap, _FILLED)
        shutil.rmtree(self._home / gap.attempts, ignore_errors=True)
        (self._notes / f"{gap.gap_id}.json").unlink(missing_ok=True)

    def check(self, writes: tuple[str, ...]) -> bool:
        """Whether gold that holds rows implies a checkpoint of the live query. UserError where the notes of gaps, their
        table and gold (``writes``) do not belong together.
        """
        gaps = self.open()
        there = {gap.gap_id for gap in gaps}
        lost = sorted(told_open(self._lake) - there)
        if lost:
            raise UserError(f"history was being read into gold, but the note of how far ({lost[0]}) is gone", REBUILD)
        table_id = str(self._lake.ensure(MESSAGE_EVENTS.name).metadata().id)
        for gap in gaps:
            if gap.table_id != table_id:
                raise UserError("a bronze table was replaced since the analytics last read it", REBUILD)
            if not Gold(self._lake.root, gap.gap_id, writes).holds(gap.number - 1):
                raise UserError(f"gold lacks history that is noted as read into it ({gap.gap_id})", REBUILD)
        return not gaps or gaps[-1].begun

    def _checkpoints(self) -> list[tuple[Path, int]]:
        """Those of the query over events that are there, and the versions at which they started; the first: 0."""
        found = ((path, _CHECKPOINT.fullmatch(path.name)) for path in self._home.glob("events*"))
        return [(path, int(match[1] or 0)) for path, match in found if match]

    def _commit(self, gap: Gap, step: int) -> None:
        row = {
            "gap_id": gap.gap_id,
            "at": datetime.now(UTC),
            "open": step == _OPENED,
            "first_version": gap.first_version,
            "last_version": gap.starts - 1,
            "events": gap.events,
        }
        rows = pa.Table.from_pylist([row], GAPS.schema)
        self._lake.append(GAPS.name, rows, app_id=gap.gap_id, version=step)


def told_open(lake: Lake) -> set[str]:
    """The gaps that readers know as open."""
    rows = lake.read(GAPS.name, columns=["gap_id", "open"]).to_pylist()
    return {row["gap_id"] for row in rows} - {row["gap_id"] for row in rows if not row["open"]}


def _read(note: Path) -> Gap | None:
    try:
        told: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        places = {name: Place(**told[name]) if told[name] else None for name in ("begins", "ends")}
        return Gap(**(told | places))
    except FileNotFoundError:  # closed meanwhile
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the note of a gap, {note}, cannot be read: {error}", REBUILD) from error
