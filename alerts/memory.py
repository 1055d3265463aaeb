"""Rule expressions over Arrow tables in memory: for the rules of a round, and for rule tests."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from lake.errors import SojournError, first_line
from lake.select import canonical, for_duckdb


class MemoryQueryError(SojournError):
    """The query cannot be run over what is in memory."""


class Memory:
    """A private, empty DuckDB that reads the Arrow tables it is given, and nothing else.

    One ``Memory`` belongs to one thread.
    """

    def __init__(self) -> None:
        self._connection = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": False, "memory_limit": "512MB"}
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        self._names: frozenset[str] = frozenset()

    def put(self, tables: Mapping[str, pa.Table]) -> None:
        """Make ``tables`` readable under their names; a table of the same name is replaced."""
        for name, table in tables.items():
            self._connection.register(name, table)
        self._names |= {name.lower() for name in tables}

    def query(self, sql: str) -> pa.Table:
        """The rows of ``sql``, a SELECT in Spark's dialect over what was put here.

        MemoryQueryError if it cannot be run; UserError if it is no such SELECT: what runs was checked here.
        """
        text = for_duckdb(canonical(sql, self._names))
        try:
            result = self._connection.sql(text).to_arrow_table()
        except duckdb.Error as error:
            raise MemoryQueryError(first_line(error)) from error
        assert isinstance(result, pa.Table)
        return result

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()
