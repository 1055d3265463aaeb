"""One queue's rows of a table, kept current: what a reader holds whose questions are about that queue alone.

Views of history partition by queue, so they say of it what they would say over all rows; what they take from all of a
broker, when the epochs of finished state begin, is kept beside, a few rows a file. Of finished state, of which there
are many rows, only the columns are held that views of history read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.remote import Location, open_parquet
from lake.snapshot import FileGone, Snapshot
from lake.store import LakeError, conform
from lake.tables import AGE_STATE, PARTIALS, QUEUE_STATE, TENANT_STATE, TableSpec
from lake.views import columns_read

#: Rows that are looked through at once: a compacted file holds a million.
_AT_ONCE = 1 << 16
#: The tables of which one queue's rows are enough.
SCOPED = (PARTIALS.name, TENANT_STATE.name, QUEUE_STATE.name, AGE_STATE.name)
#: The tables that grow with every message of every tenant.
LARGE = (PARTIALS.name, TENANT_STATE.name, AGE_STATE.name)
#: What views need of whole brokers, of `queue_state`: by the first columns the least or greatest of the last ones.
_BROKERS_BY, _BROKERS_SUMS = ("broker", "epoch", "corrects"), {"second": "min", "revision": "max"}
_BROKERS_SCHEMA = pa.schema(
    [QUEUE_STATE.schema.field(name).with_nullable(True) for name in (*_BROKERS_BY, *_BROKERS_SUMS)]
)
#: Under which name it is kept, and the view that reads it instead of the table.
BROKERS, BY_BROKER = f"brokers_of_{QUEUE_STATE.name}", "stage_epochs"
#: What orders the rows of finished state, beside the columns that views read of them.
_ORDER = frozenset(
    {"broker", "queue", "subscriber", "tenant", "epoch", "revision", "as_of", "second", "corrects", "happened"}
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The one queue that questions are about."""

    broker: str
    queue: str

    def __str__(self) -> str:
        return f"{self.broker}/{self.queue}"


@dataclass(slots=True)
class _Part:
    """One file's rows of the queue, and what it tells of brokers; ``size`` in bytes."""

    mine: pa.Table
    brokers: pa.Table | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.mine.nbytes


class ScopedSnapshot(Snapshot):
    """The rows about ``scope`` of the newest state of a table; each file is read once, where it may hold any."""

    def __init__(self, spec: TableSpec, root: Path, scope: Scope) -> None:
        super().__init__(spec, root)
        self._scope = scope
        self._schema = held_schema(spec)
        self._read_parts: dict[Location, _Part] = {}

    def current(self, known: int | None) -> tuple[Any, int]:
        """See :meth:`lake.snapshot.Snapshot.current`."""
        version = self.version()
        if version == known:
            return None, version
        if self._table is None or version < 0:
            return self._schema.empty_table(), version
        paths = self._located(self._table)
        self._read_parts = {path: self._read_parts.get(path) or self._part(path) for path in paths}
        return pa.concat_tables([self._schema.empty_table(), *(p.mine for p in self._read_parts.values())]), version

    @property
    def held(self) -> int:
        """The bytes of the rows that are held."""
        return sum(part.size for part in self._read_parts.values())

    def brokers(self) -> pa.Table | None:
        """What the files tell of whole brokers, as of the last :meth:`current`; None where views ask for nothing."""
        if self.spec.name != QUEUE_STATE.name:
            return None
        parts = [part.brokers for part in self._read_parts.values() if part.brokers is not None]
        return pa.concat_tables([_BROKERS_SCHEMA.empty_table(), *(part.cast(_BROKERS_SCHEMA) for part in parts)])

    def _part(self, path: Location) -> _Part:
        try:
            with open_parquet(path) as file:
                groups = [group for group in range(file.metadata.num_row_groups) if self._may_hold(file, group)]
                schema = file.schema_arrow  # made anew each time that it is asked for
                names = set(schema.names)
                there = [name for name in self._schema.names if name in names]
                batches = file.iter_batches(_AT_ONCE, groups, there, use_threads=False) if groups else ()
                mine = [self._of_scope(pa.Table.from_batches([batch])) for batch in batches]
                rows = pa.concat_tables([schema.empty_table().select(there), *mine])
                return _Part(self._whole(path, rows).combine_chunks(), self._of_brokers(file))
        except FileNotFoundError as error:
            raise FileGone(f"file {path} is not there any more: others have replaced it") from error
        except (OSError, pa.ArrowException) as error:
            raise LakeError(f"file {path} cannot be read: {error}") from error

    def _may_hold(self, file: pq.ParquetFile, group: int) -> bool:
        """Whether a row group may have rows of the queue, by its bounds."""
        about = file.metadata.row_group(group)
        for place in range(about.num_columns):
            column = about.column(place)
            bounds = column.statistics
            if column.path_in_schema == "queue" and bounds is not None and bounds.has_min_max:
                return bool(bounds.min <= self._scope.queue <= bounds.max)
        return True

    def _of_scope(self, rows: pa.Table) -> pa.Table:
        mine = pc.equal(rows.column("queue"), self._scope.queue)
        return rows.filter(pc.and_(mine, pc.equal(rows.column("broker"), self._scope.broker)))

    def _of_brokers(self, file: pq.ParquetFile) -> pa.Table | None:
        if self.spec.name != QUEUE_STATE.name:
            return None
        rows = conform(file.read(columns=_BROKERS_SCHEMA.names, use_threads=False), _BROKERS_SCHEMA)
        found = rows.group_by(list(_BROKERS_BY), use_threads=False).aggregate(list(_BROKERS_SUMS.items()))
        names = [*_BROKERS_BY, *(f"{name}_{how}" for name, how in _BROKERS_SUMS.items())]
        return found.select(names).rename_columns(_BROKERS_SCHEMA.names)


def held_schema(spec: TableSpec) -> pa.Schema:
    """The columns of ``spec`` that are held: of finished state what history is told by, of other tables all."""
    wanted = columns_read(f"{spec.name}_past")
    if spec.name not in (TENANT_STATE.name, QUEUE_STATE.name, AGE_STATE.name) or wanted is None:
        return spec.schema
    return pa.schema([field for field in spec.schema if field.name in wanted | _ORDER])
