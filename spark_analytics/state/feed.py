"""What is committed to the tables that are folded: each commit is read once, for the folds of levels and of ages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from lake.follow import Change, Follower
from lake.remote import Location
from lake.snapshot import FileGone, Snapshot, read_file
from lake.store import Lake
from lake.tables import TABLES
from spark_analytics.fold import lived, pauses, totals
from spark_analytics.fold.samples import read_samples
from spark_analytics.fold.survey import FED
from spark_analytics.state import ages_of

#: In commits to finished state, what counts the versions of the tables that it rests on.
FOLDED = "sojourn-state:history"
#: More bytes of files than this, as one commit may bring, or all since a long downtime, are read file by file.
MOST_BYTES = 64 << 20
#: So many rows of several files are taken in as one table.
FEW = 10_000
_COLUMNS = {
    "partials": tuple(dict.fromkeys((*lived.COLUMNS, *ages_of.PARTIAL_COLUMNS))),
    "marks": tuple(dict.fromkeys((*pauses.COLUMNS, *ages_of.MARK_COLUMNS))),
}


@dataclass(frozen=True, slots=True)
class Came:
    """What was committed between two looks.

    ``rows``: the rows of each file that brought any, or replaced partials (of these the columns that roll-ups are
    checked by), unless they are too ``much`` to be held at once; ``small``: by table the rows of several files that
    brought few; ``before``: the versions of the look before; ``rebuild``: why the rows do not tell all that changed.
    """

    changes: Mapping[str, list[Change]] = field(default_factory=lambda: {name: [] for name in FED})
    rows: Mapping[Location, pa.Table] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    rebuild: str = ""
    much: bool = False
    small: Mapping[str, pa.Table] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.changes.values())

    def of(self, name: str) -> Iterator[pa.Table]:
        """The new rows of table ``name``, file by file, or a few at once. Raises LakeError, where they are ``much``
        FileGone too."""
        if name in self.small:
            return iter([self.small[name]])
        paths = (path for change in self.changes[name] if change.brings for path in change.added)
        return (_read(name, path) if self.much else self.rows[path] for path in paths)

    def rolled_up(self) -> Iterator[pa.Table]:
        """Rows that replaced partials, file by file. Raises as :meth:`of`."""
        paths = (path for change in self.changes["partials"] if change.replaces for path in change.added)
        return (read_file(path, totals.COLUMNS) if self.much else self.rows[path] for path in paths)


class Feed:
    """Follows the tables of the lake at ``root`` that are folded; the first look finds what came ``since`` these
    versions, or that all has to be read."""

    def __init__(self, root: Path, since: Mapping[str, int] | None = None) -> None:
        first = {name: since.get(name, -1) for name in FED} if since else {}
        self._followers = {name: Follower(Snapshot(TABLES[name], root), first.get(name)) for name in FED}

    @property
    def versions(self) -> dict[str, int]:
        """The versions of the tables that looks have come to."""
        known = ((name, follower.version) for name, follower in self._followers.items())
        return {name: version for name, version in known if version is not None and version >= 0}

    def files(self) -> dict[str, list[Location]]:
        """The files that hold the tables at :attr:`versions`. Raises LakeError."""
        return {name: follower.files() for name, follower in self._followers.items()}

    @property
    def more(self) -> bool:
        """Whether the last look left commits for the next one."""
        return any(follower.more for follower in self._followers.values())

    def look(self, *, whole: bool = True) -> Came:
        """Read what was committed since the last look: the ``whole`` of it, or as much as is held at once. Raises
        LakeError."""
        before, most = self.versions, math.inf if whole else MOST_BYTES
        changes = {name: follower.changes(most) for name, follower in self._followers.items()}
        if any(change.anew for each in changes.values() for change in each):
            return Came(changes, {}, before, "a table's log does not tell what changed")
        if any(sum(one.size for one in each if not one.same_rows) > MOST_BYTES for each in changes.values()):
            return Came(changes, {}, before, much=True)
        rows: dict[Location, pa.Table] = {}
        try:
            for name, each in changes.items():
                for change in each:
                    if change.brings:
                        rows |= {path: _read(name, path) for path in change.added}
                    elif change.replaces and name == "partials":
                        rows |= {path: read_file(path, totals.COLUMNS) for path in change.added}
        except FileGone as gone:
            return Came(changes, {}, before, str(gone))
        came = Came(changes, rows, before)
        return replace(came, small={name: few for name in FED if (few := _together(list(came.of(name)))) is not None})


def _together(parts: list[pa.Table]) -> pa.Table | None:
    """``parts`` as one table, where there are several of few rows: each costs as much as all of them."""
    if len(parts) < 2 or sum(rows.num_rows for rows in parts) > FEW or any(p.schema != parts[0].schema for p in parts):
        return None
    return pa.concat_tables(parts).combine_chunks()


def _read(name: str, path: Location) -> pa.Table:
    return read_samples(path) if name == "queue_samples" else read_file(path, _COLUMNS[name])


def versions_folded(lake: Lake, name: str) -> dict[str, int]:
    """The versions of the tables that the rows of table ``name`` of finished state rest on."""
    known = {fed: lake.committed(name, f"{FOLDED}:{fed}") for fed in FED}
    return {fed: version for fed, version in known.items() if version is not None}
