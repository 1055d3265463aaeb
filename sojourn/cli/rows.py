"""Rows of a query as text: a table for eyes, CSV and JSON lines for programs, batch by batch."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa

from lake.visible import visible, visible_json, visible_lines

#: A table is as wide as its widest row: it can only be drawn when all its rows are there.
TABLE_ROWS = 10_000
#: Rows that are turned into Python values at once.
_CHUNK = 4096

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch]], Iterator[str]]


def as_table(rows: pa.Table) -> str:
    """A table for eyes, as wide as the terminal, or as its content where the output is a file."""
    return "".join(table_text(rows.schema, rows.to_batches()))


def as_csv(rows: pa.Table) -> str:
    """RFC 4180 with a header line; an empty field is null; nested values are JSON."""
    return "".join(csv_text(rows.schema, rows.to_batches()))


def as_json(rows: pa.Table) -> str:
    """One JSON object a line; numbers are numbers, maps are objects, timestamps are ISO 8601 in UTC."""
    return "".join(json_text(rows.schema, rows.to_batches()))


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
    for values in _values(batches):
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


def csv_text(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """As :func:`as_csv`, in pieces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(schema.names)
    for number, values in enumerate(_values(batches), start=1):
        writer.writerow(["" if value is None else _flat(value) for value in values])
        if number % _CHUNK == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def json_text(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """As :func:`as_json`, in pieces."""
    for values in _values(batches):
        yield _json(dict(zip(schema.names, values, strict=True))) + "\n"


WRITERS: dict[str, Writer] = {"table": table_text, "csv": csv_text, "json": json_text}
FORMATS: dict[str, Callable[[pa.Table], str]] = {"table": as_table, "csv": as_csv, "json": as_json}


def write(format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: IO[str]) -> None:
    """Write rows to ``out``: to files and other programs exactly as they are, to a terminal without its commands."""
    shown = visible_lines if out.isatty() else str
    for text in WRITERS[format](schema, batches):
        out.write(shown(text))


def _values(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows as Python values, a few thousand at a time; two columns may have one name."""
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK):
            piece = batch.slice(start, _CHUNK)
            yield from zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in piece.columns), strict=True)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(str(_flat(value)))


def _flat(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        return _json(value)
    return _plain(value) if isinstance(value, datetime | date | bytes) else value


def _json(value: Any) -> str:
    try:
        return visible_json(json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False))
    except ValueError:  # JSON has no word for these numbers
        return visible_json(json.dumps(_with_words(value), default=_plain, ensure_ascii=False))


def _with_words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _with_words(one) for key, one in value.items()}
    return [_with_words(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else str(value)
