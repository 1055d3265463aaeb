"""One queue's rows of a table, kept current: what a reader holds whose questions are about that queue alone.

Views of history partition by queue, so they say of it what they would say over all rows; what they take from all of a
broker (its data time, up to when seconds were rolled up) is kept beside, a few rows a file.
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
from lake.store import LakeError
from lake.tables import AGE_STATE, MARKS, PARTIALS, QUEUE_SAMPLES, TENANT_STATE, TableSpec

#: Rows that are looked through at once: a compacted file holds a million.
_AT_ONCE = 1 << 16
#: The tables of which one queue's rows are enough.
SCOPED = (PARTIALS.name, MARKS.name, QUEUE_SAMPLES.name)
#: The tables that grow with every message of every tenant.
LARGE = (PARTIALS.name, TENANT_STATE.name, AGE_STATE.name)
#: What views need of whole brokers: of these tables the last columns, each the greatest by the first ones.
_OF_BROKERS = {
    PARTIALS.name: (("broker", "bucket_seconds"), ("newest_occurred_at", "bucket_start")),
    QUEUE_SAMPLES.name: (("broker",), ("sampled_at",)),
}
#: Views that read those instead of the tables.
BY_BROKER = frozenset({"stage_clock", "stage_levels"})


@dataclass(frozen=True, slots=True)
class Scope:
    """The one queue that questions are about."""

    broker: str
    queue: str

    def __str__(self) -> str:
        return f"{self.broker}/{self.queue}"


def of_brokers(table: str) -> str:
    """The name of what is kept of whole brokers of ``table``; ``table`` itself where nothing is."""
    return f"brokers_of_{table}" if table in _OF_BROKERS else table


@dataclass(slots=True)
class _Part:
    """One file's rows of the queue, and what it tells of brokers."""

    mine: pa.Table
    brokers: pa.Table | None = field(default=None)


class ScopedSnapshot(Snapshot):
    """The rows about ``scope`` of the newest state of a table; each file is read once, where it may hold any."""

    def __init__(self, spec: TableSpec, root: Path, scope: Scope) -> None:
        super().__init__(spec, root)
        self._scope = scope
        self._read_parts: dict[Location, _Part] = {}

    def current(self, known: int | None) -> tuple[Any, int]:
        """See :meth:`lake.snapshot.Snapshot.current`."""
        version = self.version()
        if version == known:
            return None, version
        if self._table is None or version < 0:
            return self.spec.schema.empty_table(), version
        paths = self._located(self._table)
        self._read_parts = {path: self._read_parts.get(path) or self._part(path) for path in paths}
        return pa.concat_tables([self.spec.schema.empty_table(), *(p.mine for p in self._read_parts.values())]), version

    def brokers(self) -> pa.Table | None:
        """What the files tell of whole brokers, as of the last :meth:`current`; None where views ask for nothing."""
        if self.spec.name not in _OF_BROKERS:
            return None
        keys, greatest = _OF_BROKERS[self.spec.name]
        schema = pa.schema([self.spec.schema.field(name).with_nullable(True) for name in (*keys, *greatest)])
        parts = [part.brokers for part in self._read_parts.values() if part.brokers is not None]
        return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])

    def _part(self, path: Location) -> _Part:
        try:
            with open_parquet(path) as file:
                groups = [group for group in range(file.metadata.num_row_groups) if self._may_hold(file, group)]
                batches = file.iter_batches(_AT_ONCE, row_groups=groups, use_threads=False) if groups else ()
                mine = [self._of_scope(pa.Table.from_batches([batch])) for batch in batches]
                rows = pa.concat_tables([file.schema_arrow.empty_table(), *mine])
                return _Part(self._whole(path, rows).combine_chunks(), self._of_brokers(file))
        except FileNotFoundError as error:
            raise FileGone(f"file {path} is not there any more: others have replaced it") from error
        except (OSError, pa.ArrowException) as error:
            raise LakeError(f"file {path} cannot be read: {error}") from error

    def _may_hold(self, file: pq.ParquetFile, group: int) -> bool:
        """Whether a row group may have rows of the queue, by its bounds. Samples of others tell of its dead letters."""
        if self.spec.name == QUEUE_SAMPLES.name:
            return True
        about = file.metadata.row_group(group)
        for place in range(about.num_columns):
            column = about.column(place)
            bounds = column.statistics
            if column.path_in_schema == "queue" and bounds is not None and bounds.has_min_max:
                return bool(bounds.min <= self._scope.queue <= bounds.max)
        return True

    def _of_scope(self, rows: pa.Table) -> pa.Table:
        mine = pc.equal(rows.column("queue"), self._scope.queue)
        if self.spec.name == QUEUE_SAMPLES.name and "dead_letter_for" in rows.column_names:
            holds = pc.match_substring(rows.column("dead_letter_for"), self._scope.queue)
            mine = pc.or_(mine, pc.fill_null(holds, False))
        return rows.filter(pc.and_(mine, pc.equal(rows.column("broker"), self._scope.broker)))

    def _of_brokers(self, file: pq.ParquetFile) -> pa.Table | None:
        if self.spec.name not in _OF_BROKERS:
            return None
        keys, greatest = _OF_BROKERS[self.spec.name]
        rows = file.read(columns=[*keys, *greatest], use_threads=False)
        found = rows.group_by(list(keys), use_threads=False).aggregate([(name, "max") for name in greatest])
        return found.rename_columns([name.removesuffix("_max") for name in found.column_names]).select(
            [*keys, *greatest]
        )
