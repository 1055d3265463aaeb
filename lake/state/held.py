"""The newest row of each key of one table of finished state, kept current commit by commit."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.now.follow import Follower
from lake.snapshot import Snapshot, read_file
from lake.store import conform
from lake.tables import TABLES

#: Read as numbers and the few texts that they stand for: a hundred thousand rows name few queues.
_REPEATING = ("broker", "queue", "subscriber", "kind", "drain_state", "mode", "status")
_NOT_HELD = frozenset({"epoch", "revision"})


class Held:
    """The rows of table ``name`` of the lake at ``root`` that are the newest of their keys in the newest epoch.

    A cold reader reads the files of that epoch alone; a warm one what was committed since. Belongs to one thread.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.spec = TABLES[name]
        self.epoch = self.revision = -1
        self._snapshot = Snapshot(self.spec, root)
        self._follower = Follower(self._snapshot)
        self._ahead: list[pa.Table] = []  # of a revision that the caller has not asked for yet
        self._columns = [field.name for field in self.spec.schema if field.name not in _NOT_HELD]
        self._schema = pa.schema([_held(self.spec.schema.field(name)) for name in self._columns])
        self._rows = self._schema.empty_table()
        self._place = np.zeros(0, np.int64)  # of each key: its row; −1: none

    @property
    def rows(self) -> pa.Table:
        """The newest row of each key, in no order; repeated texts as dictionaries."""
        return self._rows

    def refresh(self, epoch: int | None = None, revision: int | None = None) -> bool:
        """Take in what was committed: up to ``revision`` of ``epoch``, or all there is; whether rows changed.

        Raises LakeError.
        """
        for change in self._follower.changes():
            if change.anew:
                self._ahead = []
                files = self._files_since(epoch)
            elif change.same_rows:
                continue
            else:
                files = change.added
            self._ahead += [self._read(path) for path in files]
        return self._take_in(epoch, revision)

    def _files_since(self, epoch: int | None) -> list[Path]:
        """The files with rows of ``epoch`` (default: the newest) or a later one, by the bounds that the log tells."""
        table = self._snapshot.table
        if table is None:
            return []
        files = pa.table(table.get_add_actions(flatten=True))
        if files.num_rows == 0 or "max.epoch" not in files.column_names:
            return [Path(path) for path in table.file_uris()]
        least = pc.max(files.column("max.epoch")) if epoch is None else epoch
        mine = files.filter(pc.fill_null(pc.greater_equal(files.column("max.epoch"), least), True))
        return [self._snapshot.path / unquote(path) for path in mine.column("path").to_pylist()]

    def _read(self, path: Path) -> pa.Table:
        return conform(read_file(path), self.spec.schema)

    def _take_in(self, epoch: int | None, revision: int | None) -> bool:
        if not self._ahead:
            return False
        rows = pa.concat_tables(self._ahead)
        epochs, revisions = (rows.column(name).to_numpy() for name in ("epoch", "revision"))
        if epoch is None or revision is None:
            epoch, revision = int(epochs.max(initial=self.epoch)), int(revisions.max(initial=self.revision))
        later = (epochs > epoch) | ((epochs == epoch) & (revisions > revision))
        self._ahead = [rows.filter(pa.array(later))] if later.any() else []
        since = self.revision if epoch == self.epoch else -1
        mine = np.flatnonzero((epochs == epoch) & (revisions <= revision) & (revisions > since))
        if len(mine) == 0:
            return False
        seconds = _micros(rows)
        mine = mine[np.lexsort((revisions[mine], seconds[mine]))]  # what corrects the past is no key's present
        fresh = rows.select(self._columns).take(pa.array(mine)).cast(self._schema)
        if epoch != self.epoch:
            self._rows, self._place = self._schema.empty_table(), np.zeros(0, np.int64)
        self.epoch, self.revision = epoch, int(revisions[mine].max())
        self._put(fresh)
        return True

    def _put(self, fresh: pa.Table) -> None:
        """Replace the rows of the keys that ``fresh`` has, in order, by the last of several; new keys come last."""
        keys = fresh.column("key").to_numpy()
        known = len(self._place)
        if (most := int(keys.max())) >= known:
            room = np.full(max(2 * known, most + 1), -1, np.int64)
            room[:known] = self._place
            self._place = room
        there = self._rows.num_rows
        if there:  # rows of before what is held correct the past
            held, came = (_micros(rows) for rows in (self._rows, fresh))
            newer = (self._place[keys] < 0) | (came >= held[self._place[keys]])
            fresh, keys = fresh.filter(pa.array(newer)), keys[newer]
        last = np.full(len(self._place), -1, np.int64)
        last[keys] = np.arange(len(keys)) + there  # of several rows of a key the last one counts
        at = np.arange(there)
        old = self._rows.column("key").to_numpy()
        at = np.where(last[old] >= 0, last[old], at) if there else at
        new = np.unique(keys[self._place[keys] < 0])
        self._place[new] = there + np.arange(len(new))
        both = pa.concat_tables([self._rows, fresh]).unify_dictionaries()
        self._rows = both.take(pa.array(np.concatenate((at, last[new])))).combine_chunks()


def _micros(rows: pa.Table) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = rows.column("as_of").cast(pa.int64()).to_numpy()
    return found


def _held(field: pa.Field) -> pa.Field:
    if field.name in _REPEATING:
        return pa.field(field.name, pa.dictionary(pa.int32(), pa.string()))
    return pa.field(field.name, field.type)


def newest_by(groups: pa.ChunkedArray, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Of each row the greatest of ``values`` in its group."""
    codes = groups.combine_chunks()
    codes = codes if isinstance(codes, pa.DictionaryArray) else codes.dictionary_encode()
    places = codes.indices.to_numpy(zero_copy_only=False)
    most = np.full(len(codes.dictionary), np.iinfo(np.int64).min, np.int64)
    np.maximum.at(most, places, values)
    newest: npt.NDArray[np.int64] = most[places]
    return newest
