"""The newest row of each key of one table of finished state, kept current commit by commit."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.follow import Follower
from lake.ordered import precedes
from lake.remote import Location
from lake.snapshot import FileGone, Snapshot, pieces_of
from lake.state.columns import column
from lake.store import conform
from lake.tables import TABLES
from lake.views.catalogue import NEWEST_BY, NEWEST_BY_DEFAULT

#: What orders rows, read whatever else is wanted; of these, what is not held. Two seconds can end at one data time.
_ORDER = ("epoch", "revision", "key", "as_of", "second")
_NOT_HELD = frozenset({"epoch", "revision"})
#: After so many rows at once, as a cold reader has, the memory that they went through is given back: 30 MB of 100,000.
MANY = 1 << 16
#: So many rows are looked through at once: an epoch begins with a file that has a row for every key.
AT_ONCE = 1 << 14
#: Where more files than these have come, as after a while in which nobody asked, those are read that have their rows by
#: now: most were merged.
MOST_FILES = 32
#: What a key stands for: no later row of it says otherwise; and what of that are few texts for many rows.
_OF_THE_KEY = frozenset({"key", "broker", "queue", "subscriber", "tenant", "kind"})
_REPEATED = _OF_THE_KEY - {"key", "tenant"}


class Held:
    """The rows of table ``name`` of the lake at ``root`` that are the newest of their keys in the newest epoch.

    ``columns``: those that are wanted; of others nothing is read. A cold reader reads the files of that epoch alone,
    one at a time; a warm one what was committed since. Belongs to one thread.
    """

    def __init__(self, name: str, root: Path, columns: Collection[str] | None = None) -> None:
        self.epoch = self.revision = -1
        self._newest_by = NEWEST_BY.get(name, NEWEST_BY_DEFAULT)
        schema = TABLES[name].schema
        wanted = schema.names if columns is None else {*_ORDER, *columns}
        self._schema = pa.schema([field for field in schema if field.name in wanted])
        self._not_held = _NOT_HELD if columns is None or "second" in columns else {*_NOT_HELD, "second"}
        self._snapshot = Snapshot(TABLES[name], root)
        self._follower = Follower(self._snapshot)
        self._looked_through = 0  # rows, by the last refresh
        self._ahead: list[Location] = []  # with rows of a revision that the caller has not asked for yet
        self._clear()

    def _clear(self) -> None:
        self._columns = {
            field.name: column(field, repeated=field.name in _REPEATED, constant=field.name in _OF_THE_KEY)
            for field in self._schema
            if field.name not in self._not_held
        }
        self._place = np.zeros(0, np.int32)  # of each key: its row; −1: none
        self._told = np.zeros((0, len(self._newest_by)), np.int64)  # of each row what makes it newer than others
        self._count = 0
        self._rows: pa.Table | None = None

    @property
    def rows(self) -> pa.Table:
        """The newest row of each key, in no order, repeated texts as dictionaries; until the next :meth:`refresh`."""
        if self._rows is None:
            self._rows = pa.table({name: one.array(self._count) for name, one in self._columns.items()})
        return self._rows

    def refresh(self, epoch: int | None = None, revision: int | None = None) -> bool:
        """Take in what was committed: up to ``revision`` of ``epoch``, or all there is; whether rows changed.

        Raises LakeError.
        """
        for change in self._follower.changes():
            if change.anew:
                self._ahead = self._files_since(epoch)
            elif not change.same_rows:
                self._ahead += change.added
        if len(self._ahead) > MOST_FILES and self.epoch >= 0:
            self._ahead = self._files_since(epoch, self.revision)
        pending, self._ahead = self._ahead, []
        until = None if epoch is None or revision is None else (epoch, revision)
        changed, self._looked_through = False, 0
        try:
            for path in pending:
                changed |= self._take_in(path, until)
        except FileGone:  # nobody asked for longer than replaced files are kept: what replaced them has their rows
            for path in self._files_since(epoch):
                changed |= self._take_in(path, until)
        if self._looked_through > MANY:
            pa.default_memory_pool().release_unused()
        return changed

    def _files_since(self, epoch: int | None, revision: int = -1) -> list[Location]:
        """The files with rows of ``epoch`` (default: the newest) or a later one, and of ``revision`` or a later one, by
        the bounds that the log tells."""
        self._snapshot.version()
        table = self._snapshot.table
        if table is None:
            return []
        files = pa.table(table.get_add_actions(flatten=True))
        if files.num_rows == 0 or "max.epoch" not in files.column_names:
            return self._snapshot.files()
        least = pc.max(files.column("max.epoch")) if epoch is None else epoch
        for name, bound in (("max.epoch", least), ("max.revision", revision)):
            files = files.filter(pc.fill_null(pc.greater_equal(files.column(name), bound), True))
        return [self._snapshot.path / unquote(path) for path in files.column("path").to_pylist()]

    def _take_in(self, path: Location, until: tuple[int, int] | None) -> bool:
        """Hold what a file tells up to ``until``, an epoch and a revision; whether that is anything new.

        Files may come in any order, and again.
        """
        changed = ahead = False
        for piece in pieces_of(path, self._schema.names, AT_ONCE):
            rows = conform(piece, self._schema)
            self._looked_through += rows.num_rows
            epochs, revisions = (rows.column(name).to_numpy() for name in ("epoch", "revision"))
            epoch, revision = until or (int(epochs.max(initial=self.epoch)), np.iinfo(np.int64).max)
            ahead |= bool(((epochs > epoch) | ((epochs == epoch) & (revisions > revision))).any())
            mine = np.flatnonzero((epochs == epoch) & (revisions <= revision))
            if len(mine) and epoch >= self.epoch:
                changed |= self._take_rows(rows, mine, epoch)
        if ahead:
            self._ahead.append(path)
        return changed

    def _take_rows(self, rows: pa.Table, mine: npt.NDArray[np.int64], epoch: int) -> bool:
        """Hold those of ``rows`` at ``mine``, of ``epoch``, that are newer than what is held; whether there are any."""
        if epoch > self.epoch:
            self._clear()
            self.epoch, self.revision = epoch, -1
        self.revision = max(self.revision, int(rows.column("revision").to_numpy()[mine].max()))
        # Rows of before there was `second` have none.
        order = [rows.column(name).cast(pa.int64()).fill_null(0).to_numpy()[mine] for name in self._newest_by]
        told = np.stack(order, axis=1)
        if (told != told[0]).any():  # mostly a commit tells of one instant
            sort = np.lexsort(order[::-1])
            mine, told = mine[sort], told[sort]
        return self._put(rows, mine, told)

    def _put(self, rows: pa.Table, at: npt.NDArray[np.int64], told: npt.NDArray[np.int64]) -> bool:
        """Hold those of the rows ``at``, in the order of ``told``, that are newer than what is held of their keys."""
        keys = rows.column("key").to_numpy()[at]
        if (most := int(keys.max())) >= (known := len(self._place)):
            self._place = np.concatenate((self._place, np.full(max(known, most + 1 - known), -1, np.int32)))
        last = np.full(len(self._place), -1, np.int32)
        last[keys] = np.arange(len(keys))
        newest = last[keys] == np.arange(len(keys))  # of several rows of a key the last one
        held = self._place[keys]
        if self._count:  # rows of before what is held correct the past, and are no key's present
            newest &= (held < 0) | precedes(self._told[held].T, told.T)
        if not newest.all():
            at, keys, told, held = at[newest], keys[newest], told[newest], held[newest]
        if len(at) == 0:
            return False
        new = held < 0
        self._place[keys[new]] = self._count + np.arange(int(new.sum()))
        self._count += int(new.sum())
        places = self._place[keys].astype(np.int64)
        if (more := self._count - len(self._told)) > 0:
            self._told = np.concatenate((self._told, np.zeros((more, told.shape[1]), np.int64)))
        self._told[places] = told
        chosen = rows if np.array_equal(at, np.arange(rows.num_rows)) else rows.take(pa.array(at))
        for name, one in self._columns.items():
            values = chosen.column(name)
            one.put(places, values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())
        self._rows = None
        return True


def newest_by(groups: pa.ChunkedArray, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of each row the greatest of ``values`` in its group."""
    codes = groups.combine_chunks()
    codes = codes if isinstance(codes, pa.DictionaryArray) else codes.dictionary_encode()
    places = codes.indices.to_numpy(zero_copy_only=False)
    most = np.full(len(codes.dictionary), np.iinfo(np.int64).min, np.int64)
    np.maximum.at(most, places, values)
    newest: npt.NDArray[np.int64] = most[places]
    return newest
