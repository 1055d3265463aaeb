"""One queue's rows of a table, kept current: what a reader holds whose questions are about that queue alone.

Views of history partition by queue, so they say of it what they would say over all rows; what they take from all of a
broker, when the epochs of finished state begin, is kept beside, a few rows a file. Of finished state, of which there
are many rows, only the columns are held that somebody has asked for, and of tenants only the rows of which history is
made: a picture needs a fourth of what there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.absent import completed
from lake.finished import AGE_STATE, QUEUE_STATE, TENANT_STATE
from lake.remote import Location, open_parquet
from lake.schema import TableSpec
from lake.snapshot import FileGone, Snapshot
from lake.store import LakeError, conform
from lake.tables import PARTIALS
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
#: Finished state: of it the columns are held that are asked for.
_BY_COLUMN = (TENANT_STATE.name, QUEUE_STATE.name, AGE_STATE.name)
#: What every picture asks for, sooner or later: else the second question would have all read once more.
_FIRST = frozenset({"backlog", "noisy"})
#: What is the same in all rows of a queue, and held once.
_ALIKE = frozenset({"broker", "queue"})
#: Few texts for many rows.
_REPEATED = ("kind", "drain_state")
#: Whether a row of tenants is one of history; others tell of the present alone.
_HAPPENED = "happened"
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
    """The rows about ``scope`` of the newest state of a table; each file is read once, where it may hold any, and again
    when more columns are asked for."""

    def __init__(self, spec: TableSpec, root: Path, scope: Scope) -> None:
        super().__init__(spec, root)
        self._scope = scope
        self._whole_schema = held_schema(spec)
        self._by_column = spec.name in _BY_COLUMN
        self._schema = pa.schema([]) if self._by_column else self._whole_schema
        self._read_parts: dict[Location, _Part] = {}

    def ask(self, columns: frozenset[str] | None) -> bool:
        """What follows is asked for the ``columns`` (None: all); those that nobody has asked for are null. Whether all
        has to be read anew for it."""
        known = set(self._schema.names)
        wanted = set(self._whole_schema.names)
        wanted = wanted if columns is None else wanted & (columns | _FIRST)
        if wanted <= known or not self._by_column:
            return False
        self._schema = pa.schema([field for field in self._whole_schema if field.name in wanted | known])
        self._read_parts.clear()
        return True

    def current(self, known: int | None) -> tuple[Any, int]:
        """See :meth:`lake.snapshot.Snapshot.current`."""
        version = self.version()
        if version == known:
            return None, version
        if self._table is None or version < 0:
            return self._whole_schema.empty_table(), version
        paths = self._located(self._table)
        self._read_parts = {path: self._read_parts.get(path) or self._part(path) for path in paths}
        rows = pa.concat_tables([self._held(self._schema.empty_table()), *(p.mine for p in self._read_parts.values())])
        alike = {"broker": self._scope.broker, "queue": self._scope.queue}
        return completed(rows, self._whole_schema, alike), version

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
                wanted = names & self._to_read
                there = [name for name in self._whole_schema.names if name in wanted]
                batches = file.iter_batches(_AT_ONCE, groups, there, use_threads=False) if groups else ()
                mine = [self._of_scope(pa.Table.from_batches([batch])) for batch in batches]
                rows = pa.concat_tables([schema.empty_table().select(there), *mine])
                rows = rows.select([name for name in there if name in self._schema.names])
                return _Part(self._held(self._whole(path, rows).combine_chunks()), self._of_brokers(file))
        except FileNotFoundError as error:
            raise FileGone(path) from error
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

    @property
    def _to_read(self) -> frozenset[str]:
        return frozenset(self._schema.names) | _ALIKE | ({_HAPPENED} if self.spec is TENANT_STATE else frozenset())

    def _of_scope(self, rows: pa.Table) -> pa.Table:
        mine = pc.equal(rows.column("queue"), self._scope.queue)
        mine = pc.and_(mine, pc.equal(rows.column("broker"), self._scope.broker))
        if self.spec is TENANT_STATE and _HAPPENED in rows.column_names:  # no other row is one of history
            mine = pc.and_(mine, rows.column(_HAPPENED))
        return rows.filter(mine)

    def _held(self, rows: pa.Table) -> pa.Table:
        """``rows`` as they are held: without what is the same in all of them, texts that are repeated once each."""
        if not self._by_column:
            return rows
        rows = rows.select([name for name in rows.column_names if name not in _ALIKE])
        for name in _REPEATED:
            if name not in rows.column_names:
                continue
            column = rows.column(name).dictionary_encode()
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        return rows

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
