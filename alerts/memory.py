"""Rule expressions over Arrow tables in memory: for the rules of a round, and for rule tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import duckdb
import pyarrow as pa
import sqlglot

from lake.errors import SojournError, first_line


class MemoryQueryError(SojournError):
    """The query cannot be run over what is in memory."""


@lru_cache(maxsize=1024)
def duckdb_sql(sql: str) -> str:
    """``sql``, in Spark's dialect, in DuckDB's."""
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


class Memory:
    """A private, empty DuckDB that reads the Arrow tables it is given, and nothing else.

    One ``Memory`` belongs to one thread.
    """

    def __init__(self) -> None:
        self._connection = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": False, "memory_limit": "512MB"}
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def put(self, tables: Mapping[str, pa.Table]) -> None:
        """Make ``tables`` readable under their names; a table of the same name is replaced."""
        for name, table in tables.items():
            self._connection.register(name, table)

    def query(self, sql: str) -> pa.Table:
        """The rows of ``sql``, a checked SELECT in Spark's dialect; MemoryQueryError if it cannot be run."""
        try:
            result = self._connection.sql(duckdb_sql(sql)).to_arrow_table()
        except (duckdb.Error, sqlglot.errors.SqlglotError) as error:
            raise MemoryQueryError(first_line(error)) from error
        assert isinstance(result, pa.Table)
        return result

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()
