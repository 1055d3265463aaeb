"""Rows as text for programs: CSV and JSON lines, batch by batch."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from lake.plain import plain
from lake.visible import visible_json

#: Rows that are turned into Python values at once.
_CHUNK = 4096
#: What spreadsheets take for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(rows: pa.Table) -> str:
    """RFC 4180 with a header line; an empty field is null; nested values are JSON."""
    return "".join(csv_text(rows.schema, rows.to_batches()))


def as_json(rows: pa.Table) -> str:
    """One JSON object a line; numbers are numbers, maps are objects, timestamps are ISO 8601 in UTC."""
    return "".join(json_text(rows.schema, rows.to_batches()))


def csv_text(schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, for_spreadsheets: bool = False) -> Iterator[str]:
    """As :func:`as_csv`, in pieces. ``for_spreadsheets``: what one would take for a formula begins with ``'``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(schema.names)
    for number, values in enumerate(values_of(batches), start=1):
        fields = ["" if value is None else flat(value) for value in values]
        writer.writerow([_no_formula(field) for field in fields] if for_spreadsheets else fields)
        if number % _CHUNK == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _no_formula(field: Any) -> Any:
    return f"'{field}" if isinstance(field, str) and field.startswith(_FORMULA) else field


def json_text(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """As :func:`as_json`, in pieces."""
    for values in values_of(batches):
        yield _json(dict(zip(schema.names, values, strict=True))) + "\n"


def values_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows as Python values, a few thousand at a time; two columns may have one name."""
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK):
            piece = batch.slice(start, _CHUNK)
            yield from zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in piece.columns), strict=True)


def flat(value: Any) -> Any:
    """``value`` as one field: what is nested as JSON, instants in ISO 8601."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        return _json(value)
    return plain(value) if isinstance(value, datetime | date | bytes) else value


def _json(value: Any) -> str:
    try:
        return visible_json(json.dumps(value, default=plain, ensure_ascii=False, allow_nan=False))
    except ValueError:  # JSON has no word for these numbers
        return visible_json(json.dumps(_with_words(value), default=plain, ensure_ascii=False))


def _with_words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _with_words(one) for key, one in value.items()}
    return [_with_words(one) for one in value] if isinstance(value, list | tuple) else value
