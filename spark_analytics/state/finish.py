"""Raw state → finished rows: what the public views make of each row's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.definitions import Definitions
from lake.reader import connect, to_duckdb
from lake.snapshot import Snapshot
from lake.tables import GAPS, TABLES
from lake.views import VIEWS
from spark_analytics.state.project import array_of, numpy_of, of_kind, projection

_MEMORY_MB = 100
#: By which views each table's rows are finished, and through which parts of their WITH.
_VIEWS = {
    "tenant_state": (("tenant_backlog_now", ("rates",)), ("concurrency_now", ("measured",))),
    "queue_state": (("queue_health_now", ("rates",)),),
}
#: Levels that the views do not tell while events are missing are kept: they are told again once all are there.
_KEPT = frozenset({"backlog_when_sampled"})


class Finishing:
    """Finishes rows under ``definitions``. Belongs to one thread."""

    def __init__(self, definitions: Definitions) -> None:
        self._projections = {
            name: [projection(view, definitions, through) for view, through in views] for name, views in _VIEWS.items()
        }
        #: Whether no events are missing from gold for now.
        self.complete = True

    def finished(self, name: str, rows: pa.Table, epoch: int, revision: int) -> pa.Table:
        """Raw ``rows`` of table ``name`` with all of its columns."""
        columns: dict[str, Any] = {"epoch": epoch, "revision": revision, "as_of": numpy_of(rows, "as_of_us")}
        for projected in self._projections[name]:
            read = {each: self.complete if each == "complete" else numpy_of(rows, each) for each in projected.reads}
            columns |= projected(read)
        arrays = [
            array_of(columns[field.name], field.type, rows.num_rows)
            if field.name in columns and field.name not in _KEPT
            else of_kind(rows.column(field.name), field.type)
            for field in TABLES[name].schema
        ]
        return pa.table(arrays, schema=TABLES[name].schema)


class Finisher(Finishing):
    """Finishes rows of the lake at ``root``, and follows whether all of its events are in gold."""

    def __init__(self, root: Path, definitions: Definitions) -> None:
        super().__init__(definitions)
        self._gaps = Snapshot(GAPS, root)
        self._gaps_at: int | None = None

    def refresh(self) -> bool:
        """Look whether events are missing from gold for now; whether that has changed."""
        gaps, version = self._gaps.current(self._gaps_at)
        if gaps is None:
            return False
        before, self._gaps_at = self.complete, version
        self.complete = (isinstance(gaps, pa.Table) and gaps.num_rows == 0) or self._none_open(gaps)
        return before != self.complete

    @staticmethod
    def _none_open(gaps: Any) -> bool:
        with connect(_MEMORY_MB) as connection:
            connection.register("gaps", gaps)
            for name in ("open_gaps", "stage_history"):
                connection.execute(f"CREATE TEMP VIEW {name} AS {to_duckdb(VIEWS[name].sql)}")
            return connection.sql("SELECT complete FROM stage_history").fetchall() == [(True,)]
