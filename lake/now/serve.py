"""The stages below the `…_now` views, served from memory instead of being worked out from all of history."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lake.definitions import Definitions
from lake.now import rows
from lake.now.outcome import Outcome
from lake.now.present import Present
from lake.tables import TIMESTAMP

_TENANTS = ("stage_tenants_now", "stage_concurrency_now")
_QUEUES, _NEWEST = "stage_queues_now", "stage_newest"


class Served:
    """The served stages of the lake at ``root``, under its ``definitions``. Belongs to one thread."""

    def __init__(self, root: Path, definitions: Definitions) -> None:
        self._present = Present(root, definitions)
        self._outcomes: dict[str, Outcome] = {}
        self._tables: dict[str, pa.Table] = {}
        self.generation = 0

    def close(self) -> None:
        """Let go of what is held."""
        self._outcomes.clear()
        self._tables.clear()
        self._present.forget()

    def refresh(self) -> None:
        """Take in what was committed; :attr:`generation` changes if anything was."""
        if self._present.refresh() or not self.generation:
            self._tables.clear()
            self._outcomes = {broker: Outcome(broker, fold) for broker, fold in self._present.folds.items()}
            self.generation += 1

    def table(self, name: str) -> pa.Table | None:
        """The rows of stage ``name``; None where there are none, or what was kept cannot tell them."""
        if name not in self._tables:
            tables = self._worked_out(name)
            if not tables:
                return None
            self._tables[name] = pa.concat_tables(tables)
        return self._tables[name]

    def _worked_out(self, name: str) -> list[pa.Table]:
        if name == _NEWEST:
            return [self._newest()]
        if name == _QUEUES:
            return [rows.queues(outcome) for outcome in self._outcomes.values()]
        if name not in _TENANTS:  # history
            return []
        return [rows.tenants(outcome) for outcome in self._outcomes.values() if len(outcome.keys)]

    def _newest(self) -> pa.Table:
        folds, sampled = self._present.folds, self._present.samples.newest_us
        events = [fold.as_of_us if fold.state.names else None for fold in folds.values()]
        return pa.table(
            {
                "broker": pa.array(list(folds), pa.string()),
                "as_of": pa.array(events, pa.timestamp("us")).cast(TIMESTAMP),
                "sampled_at": pa.array([sampled.get(broker) for broker in folds], pa.timestamp("us")).cast(TIMESTAMP),
            }
        )
