"""Raw state → finished rows: what the public views make of each row's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.definitions import Definitions
from lake.reader import connect, to_duckdb
from lake.snapshot import Snapshot
from lake.tables import GAPS, TABLES, TIMESTAMP
from lake.views import VIEWS
from spark_analytics.state.project import array_of, numpy_of, of_kind, projection

_MEMORY_MB = 100
#: By which views each table's rows are finished, and through which parts of their WITH.
_VIEWS = {
    "tenant_state": (("tenant_backlog_now", ("rates",)), ("concurrency_now", ("measured",))),
    "queue_state": (("queue_health_now", ("rates",)),),
}
#: Columns of raw rows under the names that the views' stages have for them.
_STAGED = {
    "as_of_us": "now_us",
    "bucket": "processing_bucket",
    "broker_delayed": "delayed",
    "window_dead_lettered": "dead_lettered",
}


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
        count = rows.num_rows
        columns: dict[str, Any] = {}
        for projected in self._projections[name]:
            columns |= projected({read: self._column(name, read, rows) for read in projected.reads})
        arrays = []
        for field in TABLES[name].schema:
            match field.name:
                case "epoch" | "revision":
                    arrays.append(pa.array(np.full(count, epoch if field.name == "epoch" else revision)))
                case "as_of":
                    arrays.append(rows.column("now_us").cast(pa.int64()).cast(pa.timestamp("us")).cast(TIMESTAMP))
                case "subscriber":
                    texts = rows.column("subscriber").cast(pa.string())
                    arrays.append(array_of(np.array(texts.to_pylist(), np.str_), field.type, count))
                case "mode_since":  # of no mode there is no beginning
                    known = pa.array(np.broadcast_to(columns["mode"], (count,)) != "")
                    arrays.append(pc.if_else(known, rows.column("mode_since"), None))
                case own if own in columns and own not in _UNFINISHED[name]:
                    arrays.append(array_of(columns[own], field.type, count))
                case own:
                    arrays.append(of_kind(rows.column(own), field.type))
        return pa.table(arrays, schema=TABLES[name].schema)

    def _column(self, name: str, read: str, rows: pa.Table) -> Any:
        match read:
            case "complete":
                return self.complete
            case "in_flight" if name == "queue_state":
                return numpy_of(rows, "events_in_flight")
            case _:
                return numpy_of(rows, _STAGED.get(read, read))


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


#: What readers bring to a later data time themselves, or tell apart by what is missing: kept as the fold has it.
_UNFINISHED: dict[str, frozenset[str]] = {
    "tenant_state": frozenset(),
    "queue_state": frozenset({"backlog", "backlog_when_sampled"}),
}
