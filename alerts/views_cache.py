"""One reading of each `…_now` view serves all rules of a round: they see the same rows, and cost little each."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from alerts.evaluate import Query
from alerts.memory import Memory, MemoryQueryError
from alerts.rules.expression import ENGINE_VIEWS
from lake.select import check, tables_of
from lake.tables import TABLES
from lake.views import VIEWS

#: A view is left alone for this many times as long as reading it took: rules must not starve what feeds them.
PACE = 3.0


class ViewCache:
    """Answers queries from views held in memory, and asks the lake for everything else. Belongs to one thread."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._memory = Memory()
        self._outdated: dict[str, bool] = {}  # by the name of what is held
        self._costs: dict[str, float] = {}
        self._read_at: dict[str, float] = {}

    def put(self, name: str, table: pa.Table) -> None:
        """Hold ``table`` under ``name``."""
        self._memory.put({name: table})
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
            if _is_held(name) and self._outdated.get(name, True):
                started = time.monotonic()
                try:
                    self.put(name, self._query(f"SELECT * FROM {name}"))
                finally:
                    self._read_at[name] = time.monotonic()
                    self._costs[name] = self._read_at[name] - started

    def query(self, sql: str) -> pa.Table:
        """The rows of the checked SELECT ``sql``, over views as they were last read."""
        tables = _tables(sql)
        if not all(name in self._outdated or _is_held(name) for name in tables):
            return self._query(sql)
        self.refresh(tables - self._outdated.keys())
        try:
            return self._memory.query(sql)
        except MemoryQueryError:
            if not all(_is_held(name) for name in tables):
                raise
            return self._query(sql)  # a function that only the lake's reader knows, as those for histograms

    def cost(self, tables: Iterable[str]) -> float:
        """What reading ``tables`` took last time: cheap rules go first, so that nobody waits for the dear ones."""
        return sum(self._costs.get(name, 0.0) for name in tables)

    def close(self) -> None:
        """Let go of everything."""
        self._memory.close()


@lru_cache(maxsize=1024)
def _tables(sql: str) -> frozenset[str]:
    return frozenset(tables_of(check(sql, {*VIEWS, *TABLES, *ENGINE_VIEWS})))


def _is_held(name: str) -> bool:
    return name.endswith("_now")
