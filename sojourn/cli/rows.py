"""Rows of a query as text: a table for eyes, CSV and JSON lines for programs, batch by batch."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from lake.texts import as_csv, as_json, csv_text, flat, json_text, values_of
from lake.visible import visible, visible_lines

#: A table is as wide as its widest row: it can only be drawn when all its rows are there.
TABLE_ROWS = 10_000

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch]], Iterator[str]]


def as_table(rows: pa.Table) -> str:
    """A table for eyes, as wide as the terminal, or as its content where the output is a file."""
    return "".join(table_text(rows.schema, rows.to_batches()))


def table_text(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """As :func:`as_table`; of more than ``TABLE_ROWS`` rows, the first, and a line that says so."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for field in schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(Text(visible(field.name)), justify="right" if numeric else "left", overflow="fold")
    number = 0
    for values in values_of(batches):
        number += 1
        if number <= TABLE_ROWS:
            table.add_row(*(Text(_cell(value)) for value in values))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    text = io.StringIO()
    console = Console(file=text, width=width, no_color=True)
    console.print(table)
    console.print(f"{number:,} row{'' if number == 1 else 's'}", highlight=False)
    if number > TABLE_ROWS:
        console.print(f"the first {TABLE_ROWS:,} are shown: --format csv or json writes all", highlight=False)
    yield "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


WRITERS: dict[str, Writer] = {"table": table_text, "csv": csv_text, "json": json_text}
FORMATS: dict[str, Callable[[pa.Table], str]] = {"table": as_table, "csv": as_csv, "json": as_json}


def write(format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """Write rows to ``out``: to files and other programs exactly as they are, to a terminal without its commands."""
    shown = visible_lines if out.isatty() else str
    for text in WRITERS[format](schema, batches):
        out.write(shown(text))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(str(flat(value)))
