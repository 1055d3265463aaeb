"""Rows of a query as text: a table for eyes, CSV and JSON lines for programs, batch by batch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from lake.texts import as_csv, as_json, csv_text, flat, json_text, values_of
from lake.visible import visible, visible_lines
from sojourn.cli.options import terminal_width

if TYPE_CHECKING:
    from rich.table import Table as RichTable

#: A table is as wide as its widest row: it can only be drawn when all its rows are there.
TABLE_ROWS = 10_000

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch]], Iterator[str]]


def as_table(rows: pa.Table) -> str:
    """A table for eyes, as wide as the terminal, or as its content where the output is a file."""
    return "".join(table_text(rows.schema, rows.to_batches()))


def table_text(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """As :func:`as_table`; of more than ``TABLE_ROWS`` rows, the first, and a line that says so. Where words would have
    to be cut for the columns to fit in the terminal, each row is a block of lines instead, a line a column."""
    from rich.console import Console
    from rich.measure import Measurement

    names = [visible(name) for name in schema.names]
    rows: list[list[str]] = []
    number = 0
    for values in values_of(batches):
        number += 1
        if number <= TABLE_ROWS:
            rows.append([_cell(value) for value in values])
    width = terminal_width() or 10_000
    text = io.StringIO()
    console = Console(file=text, width=width, no_color=True)
    table = _side_by_side(schema, names, rows)
    unbounded = console.options.update(max_width=1_000_000)
    if Measurement.get(console, unbounded, table).minimum <= width:
        console.print(table)
    else:
        for at, row in enumerate(rows, 1):
            console.rule(f"{at:,}", align="left", characters="─")
            console.print(_below_each_other(names, row))
    console.print(f"{number:,} row{'' if number == 1 else 's'}", highlight=False)
    if number > TABLE_ROWS:
        console.print(f"the first {TABLE_ROWS:,} are shown: --format csv or json writes all", highlight=False)
    yield "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _side_by_side(schema: pa.Schema, names: list[str], rows: list[list[str]]) -> RichTable:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for field, name in zip(schema, names, strict=True):
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _below_each_other(names: list[str], row: list[str]) -> RichTable:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, cell in zip(names, row, strict=True):
        table.add_row(Text(name), Text(cell))
    return table


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
