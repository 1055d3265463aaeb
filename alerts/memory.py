"""Rule expressions over Arrow tables in memory: for rule tests, and for trying out what a rule says."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from alerts.aside import rule_worker
from lake.errors import SojournError, UserError
from lake.select import canonical, check, for_duckdb, tables_of
from lake.worker.worker import Overrun


class MemoryQueryError(SojournError):
    """The query cannot be run over what is in memory."""


class Memory:
    """Arrow tables by name, and answers from them; the SQL runs where it can be killed."""

    def __init__(self) -> None:
        self._tables: dict[str, pa.Table] = {}

    def put(self, tables: Mapping[str, pa.Table]) -> None:
        """Make ``tables`` readable under their names; a table of the same name is replaced."""
        self._tables.update({name.lower(): table for name, table in tables.items()})

    def query(self, sql: str) -> pa.Table:
        """The rows of ``sql``, a SELECT in Spark's dialect over what was put here.

        MemoryQueryError if it cannot be run; UserError if it is no such SELECT: what runs was checked here. Overrun if
        it goes beyond its limits.
        """
        return self.answer(for_duckdb(canonical(sql, self._tables)), tables_of(check(sql, self._tables)))

    def answer(self, text: str, names: Collection[str]) -> pa.Table:
        """The rows of ``text``, which :func:`lake.select.for_duckdb` gave, over the tables ``names``. Raises as query,
        but for UserError."""
        read = {name: self._tables[name] for name in names}
        try:
            return rule_worker().query_over(read, text)
        except Overrun:
            raise
        except UserError as error:
            raise MemoryQueryError(error.what) from error

    def close(self) -> None:
        """Let go of everything."""
        self._tables.clear()
