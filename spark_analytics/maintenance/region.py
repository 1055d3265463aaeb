"""A part of a table, read and replaced as one: the rows that meet every condition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from lake.dataset import rows_of
from lake.errors import first_line
from lake.store import Lake, explained
from lake.tables import TABLES

log = logging.getLogger(__name__)

#: How often a replacement is tried while others append rows of the same times.
MOST_TRIES = 5

Value = str | int | datetime


@dataclass(frozen=True, slots=True)
class Region:
    """Conditions ``(column, operator, value)``, all of which hold for its rows. The columns are never null."""

    conditions: tuple[tuple[str, str, Value], ...]

    def sql(self) -> str:
        """The region as a predicate of Delta."""
        return " AND ".join(f"{column} {operator} {_literal(value)}" for column, operator, value in self.conditions)

    def read(self, table: DeltaTable, columns: list[str] | None = None) -> pa.Table:
        """The region's rows in ``table``; files that cannot hold any are not opened."""
        return rows_of(table, columns, self.conditions)


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return f"'{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}'"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def replace(
    lake: Lake,
    name: str,
    region: Region,
    change: Callable[[pa.Table], pa.Table | None],
    *,
    numbered: tuple[str, int] | None = None,
) -> tuple[int, int] | None:
    """Replace the rows of ``region`` by what ``change`` makes of them, in one commit: the rows before and after.

    The rows are read at the very version that the commit is checked against: what is appended in between is a conflict,
    and they are read anew. ``numbered`` (application, number) makes a commit that is made once, by whomever. None where
    others were quicker :data:`MOST_TRIES` times, have made that commit, ``change`` wants nothing changed, or the region
    is empty, which files whose bounds lie on either side of it do not tell: the table is as it was, unless the commit
    is numbered. SojournError where the table cannot be used.
    """
    properties = CommitProperties(app_transactions=[Transaction(*numbered)]) if numbered else None
    try:
        for _ in range(MOST_TRIES):
            table = lake.ensure(name)
            if numbered and (table.transaction_version(numbered[0]) or 0) >= numbered[1]:
                return None
            there = region.read(table).cast(TABLES[name].schema)
            if there.num_rows == 0 and not numbered:
                return None
            rows = change(there)
            if rows is None:
                return None
            try:
                write_deltalake(table, rows, mode="overwrite", predicate=region.sql(), commit_properties=properties)
                return there.num_rows, rows.num_rows
            except CommitFailedError as error:
                log.debug("%s: %s", name, first_line(error))
        log.info("others write to %s where %s: deferred", name, region.sql())
        return None
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise explained(error, lake.path(name)) from error
