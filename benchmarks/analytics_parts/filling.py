"""Commits as a collector leaves them, thousands of them in seconds: files and log entries of the shape of a real one.

A collector at 10,000 events a second commits five times a second. Waiting for ten minutes of that would measure
nothing but how fast commits are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.checkpoints import CHECKPOINT_INTERVAL
from lake.store import Lake, conform
from lake.tables import MESSAGE_EVENTS


class Filling:
    """Appends to message_events of ``lake``, which nobody else writes to meanwhile."""

    def __init__(self, lake: Lake, first: pa.Table) -> None:
        """Commit ``first`` as collectors do; later commits are made in its image."""
        lake.append(MESSAGE_EVENTS.name, first)
        self._lake = lake
        self._table = lake.path(MESSAGE_EVENTS.name)
        self._version = lake.version(MESSAGE_EVENTS.name)
        entry = [json.loads(line) for line in self._entry().read_text(encoding="utf-8").splitlines()]
        [self._add] = [action["add"] for action in entry if "add" in action]
        self._others = [action for action in entry if "add" not in action]

    def commit(self, rows: pa.Table) -> None:
        """Add ``rows`` in one commit."""
        rows = conform(rows, MESSAGE_EVENTS.schema).drop_columns(["ingest_date"])
        path = Path(self._add["path"]).with_name(f"part-00000-{uuid4()}-c000.snappy.parquet")
        pq.write_table(rows, self._table / path)
        changed = {
            "path": str(path),
            "size": (self._table / path).stat().st_size,
            "modificationTime": self._add["modificationTime"] + self._version,  # the order of arrival, where asked
            "stats": json.dumps(self._statistics(rows)),
        }
        self._version += 1
        actions = [*self._others, {"add": self._add | changed}]
        self._entry().write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")

    def done(self) -> None:
        """Leave the checkpoint and the checksum that stand after so many commits."""
        table = self._lake.ensure(MESSAGE_EVENTS.name)
        self._lake.write_checksum(MESSAGE_EVENTS.name)
        if self._version >= CHECKPOINT_INTERVAL:
            table.load_as_version(self._version - self._version % CHECKPOINT_INTERVAL)
            table.create_checkpoint()

    def _entry(self) -> Path:
        return self._table / "_delta_log" / f"{self._version:020}.json"

    def _statistics(self, rows: pa.Table) -> dict[str, Any]:
        """Those of the same columns as in the first commit."""
        told = json.loads(self._add["stats"])
        bounds = {name: pc.min_max(rows.column(name)).as_py() for name in told["minValues"]}
        return {
            "numRecords": rows.num_rows,
            "minValues": {name: _written(bound["min"]) for name, bound in bounds.items()},
            "maxValues": {name: _written(bound["max"]) for name, bound in bounds.items()},
            "nullCount": {name: rows.column(name).null_count for name in told["nullCount"]},
        }


def _written(value: Any) -> Any:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if hasattr(value, "strftime") else value
