"""One reading of each `…_now` view serves all rules of a round: they see the same rows, and cost little each."""

from __future__ import annotations

import time

import pyarrow as pa

from alerts.evaluate import Query
from alerts.memory import Memory, MemoryQueryError


class ViewCache:
    """Answers rule expressions from views held in memory, and asks the lake for everything else.

    Belongs to one thread. ``costs`` are the seconds that each view took when it was last read.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._memory = Memory()
        self._held: set[str] = set()
        self.costs: dict[str, float] = {}

    def put(self, name: str, table: pa.Table) -> None:
        """Hold ``table`` under ``name`` until the next :meth:`forget`."""
        self._memory.put({name: table})
        self._held.add(name)

    def forget(self) -> None:
        """New data: everything must be read again."""
        self._held.clear()

    def query(self, sql: str, tables: frozenset[str]) -> pa.Table:
        """The rows of the checked SELECT ``sql``, which reads ``tables``."""
        if all(name in self._held or name.endswith("_now") for name in tables):
            for name in sorted(tables - self._held):
                started = time.perf_counter()
                self.put(name, self._query(f"SELECT * FROM {name}"))
                self.costs[name] = time.perf_counter() - started
            try:
                return self._memory.query(sql)
            except MemoryQueryError:
                if not any(name.endswith("_now") for name in tables):
                    raise
                # A function that only the reader knows, as those for histograms.
        return self._query(sql)

    def cost(self, tables: frozenset[str]) -> float:
        """What reading ``tables`` took last time: cheap rules go first, so that nobody waits for the dear ones."""
        return sum(self.costs.get(name, 0.0) for name in tables)

    def close(self) -> None:
        """Let go of everything."""
        self._memory.close()
