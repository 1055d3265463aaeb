"""Rows of a query as text: a table for eyes, CSV and JSON lines for programs."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


def as_table(rows: pa.Table) -> str:
    """A table for eyes, as wide as the terminal, or as its content where the output is a file."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(table)
    console.print(f"{rows.num_rows} row{'' if rows.num_rows == 1 else 's'}")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def as_csv(rows: pa.Table) -> str:
    """RFC 4180 with a header line; an empty field is null; nested values are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.column_names)
    for row in rows.to_pylist():
        writer.writerow(["" if value is None else _flat(value) for value in row.values()])
    return out.getvalue()


def as_json(rows: pa.Table) -> str:
    """One JSON object a line; timestamps are ISO 8601 in UTC."""
    return "".join(json.dumps(row, default=_plain, ensure_ascii=False) + "\n" for row in rows.to_pylist())


FORMATS: dict[str, Callable[[pa.Table], str]] = {"table": as_table, "csv": as_csv, "json": as_json}


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(_flat(value)).replace("[", r"\[")


def _flat(value: Any) -> Any:
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return _plain(value) if isinstance(value, datetime | date | bytes) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else str(value)
