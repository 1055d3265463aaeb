"""One reading of each `…_now` view serves all rules of a round: they see the same rows, and cost little each."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from alerts.evaluate import Query
from alerts.rules.expression import ENGINE_VIEWS
from lake.select import canonical, check, for_duckdb, tables_of
from lake.tables import TABLES
from lake.views import VIEWS
from lake.worker.worker import Worker

#: A view is left alone for this many times as long as reading it took: rules must not starve what feeds them.
PACE = 3.0
#: No reading counts for less (seconds): what is held already must not be infinitely urgent.
LEAST_COST = 0.02
#: A view of a row or two that a built-in rule reads: held as well, so that it costs no process that reads history.
_SMALL = frozenset({"open_gaps"})
_KNOWN = frozenset({*VIEWS, *TABLES, *ENGINE_VIEWS})


class ViewCache:
    """Answers queries from views held in memory, and asks the lake for everything else. Belongs to one thread.

    ``query`` reads the views themselves. What rules say of them runs in ``worker``; what they ask of tables and history
    is answered by ``history``, which should be another process: the end of one must not cost the other what it read.
    """

    def __init__(self, query: Query, worker: Worker, history: Query) -> None:
        self._query = query
        self._worker = worker
        self._history = history
        self._held: dict[str, pa.Table] = {}
        self._outdated: dict[str, bool] = {}  # by the name of what is held
        self._costs: dict[str, float] = {}
        self._read_at: dict[str, float] = {}

    def put(self, name: str, table: pa.Table) -> None:
        """Hold ``table`` under ``name``."""
        self._held[name] = table
        self._outdated[name] = False

    def outdate(self) -> None:
        """There is new data: what is held is no longer the newest."""
        self._outdated = dict.fromkeys(self._outdated, True)

    def outdated(self, tables: Iterable[str]) -> bool:
        """Whether any of the views among ``tables`` would have to be read again."""
        return any(_is_held(name) and self._outdated.get(name, True) for name in tables)

    def may_read(self, tables: Iterable[str]) -> bool:
        """Whether the views among ``tables`` are up to date, or may be read again already."""
        now = time.monotonic()
        return all(
            not self._outdated.get(name, True)
            or now - self._read_at.get(name, -float("inf")) >= PACE * self._costs.get(name, 0.0)
            for name in tables
        )

    def refresh(self, tables: Iterable[str]) -> None:
        """Read those views among ``tables`` again that are out of date."""
        for name in sorted(tables):
            if (_is_held(name) or name in _SMALL) and self._outdated.get(name, True):
                started = time.monotonic()
                try:
                    self.put(name, self._query(f"SELECT * FROM {name}"))
                finally:
                    self._read_at[name] = time.monotonic()
                    self._costs[name] = self._read_at[name] - started

    def query(self, sql: str) -> pa.Table:
        """The rows of the checked SELECT ``sql``, over views as they were last read."""
        text, tables = _understood(sql)
        if not all(name in self._held or name in _SMALL or _is_held(name) for name in tables):
            return self._history(sql)
        self.refresh(tables - self._held.keys())
        return self._worker.query_over({name: self._held[name] for name in tables}, text)

    def urgency(self, tables: Iterable[str], at: float) -> float:
        """How long ``tables`` have waited to be read at ``at`` (monotonic seconds), as a multiple of what that takes.

        Cheap ones go often and dear ones in their turn: by cost alone, new data would let the cheap starve the dear.
        """
        waits = [
            (at - self._read_at.get(name, -float("inf"))) / (self._costs.get(name, 0.0) + LEAST_COST)
            for name in tables
            if self._outdated.get(name, True)
        ]
        return max(waits, default=0.0)

    def close(self) -> None:
        """Let go of everything."""
        self._held.clear()


@lru_cache(maxsize=1024)
def _understood(sql: str) -> tuple[str, frozenset[str]]:
    """``sql`` as DuckDB may run it, and the views that it reads."""
    return for_duckdb(canonical(sql, _KNOWN)), frozenset(tables_of(check(sql, _KNOWN)))


def _is_held(name: str) -> bool:
    return name.endswith("_now")
