"""Where in a Delta table's log a reader stands, and what the checkpoint of a streaming query says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.errors import UserError


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """All versions before ``version`` are behind the reader, and of its files those up to ``index``; −1: none.

    Files count as Delta's streaming source counts them: those of a commit that add data, in their order.
    """

    version: int
    index: int = -1


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a batch ended. ``begins``: the stream was still reading the table as it was at that version."""

    place: Place
    begins: bool


class Checkpoint:
    """The notes of one streaming query, as Spark keeps them: what it planned and what it finished, by batch.

    Methods raise UserError where they cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def planned(self) -> list[int]:
        """The batches of which the end is noted, oldest first; old ones are forgotten."""
        return _numbers(self.folder / "offsets")

    def finished(self) -> list[int]:
        """The batches that are done."""
        return _numbers(self.folder / "commits")

    def query_id(self) -> str | None:
        """By which number the query's commits go; None before it has begun."""
        metadata = self.folder / "metadata"
        if not metadata.exists():
            return None
        try:
            return str(json.loads(metadata.read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error

    def offset(self, batch: int, table: str) -> Offset | None:
        """Where ``batch`` ended in the table with this id; None if it did not read that table."""
        try:
            # After two lines of Spark's own, one of JSON for each source.
            lines = (self.folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
            for line in lines:
                told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
                if told.get("reservoirId") == table:
                    index = max(-1, int(told.get("index", -1)))
                    return Offset(Place(int(told["reservoirVersion"]), index), bool(told.get("isStartingVersion")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error
        return None

    def _unreadable(self, error: Exception) -> UserError:
        return UserError(
            f"the checkpoint {self.folder} cannot be read: {error}",
            "start `sojourn analyze` once: it says what to do",
        )


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())
