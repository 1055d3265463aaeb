"""Rows of bronze as Kafka records: one a row, JSON under the columns' own names, times in ISO 8601, UTC.

One record a row, measured against a hundred rows a record: the producer takes 200,000 a second either way, as many as
become JSON in that time; and any other program can read, or write, the topic.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from lake.tables import TABLES

_ISO = "%Y-%m-%dT%H:%M:%S.%fZ"


class Encoder:
    """Makes records of rows; belongs to one thread."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config={"threads": "1"})

    def records(self, name: str, rows: pa.Table) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each of ``rows`` (exactly the columns of table ``name``).

        The key is ``broker|queue``, so that what happens to one queue keeps its order, or the source where there is no
        queue. A number that JSON does not know (infinite, not a number) becomes null.
        """
        columns = ", ".join(_column(field) for field in rows.schema)
        key = "broker || '|' || queue" if "queue" in rows.schema.names else "source"
        naive = pa.table([_naive(column) for column in rows.columns], names=rows.column_names)
        self._database.register("given", naive)
        try:
            made = self._database.sql(
                f"SELECT key, to_json(row)::VARCHAR AS value FROM "
                f"(SELECT {key} AS key, {{{columns}}} AS row FROM given)"
            ).to_arrow_table()
        finally:
            self._database.unregister("given")
        for batch in made.cast(pa.schema([("key", pa.binary()), ("value", pa.binary())])).to_batches():
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def topic(prefix: str, name: str) -> str:
    """The topic that carries table ``name``; "positions" is that of the collectors' own positions."""
    assert name == "positions" or name in TABLES
    return f"{prefix}.{name}"


def _column(field: pa.Field) -> str:
    name = f'"{field.name}"'
    if pa.types.is_timestamp(field.type):
        return f"{name}: strftime({name}, '{_ISO}')"
    if pa.types.is_floating(field.type):
        return f"{name}: CASE WHEN isfinite({name}) THEN {name} END"
    return f"{name}: {name}"


def _naive(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without its zone, which is UTC: the database would look it up for each value."""
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
