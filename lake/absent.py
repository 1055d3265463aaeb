"""Columns of which every row says the same: they cost nothing, however many rows there are."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa


def completed(rows: pa.Table, schema: pa.Schema, alike: Mapping[str, str] | None = None) -> pa.Table:
    """``rows`` with all columns of ``schema``, in its order: those that they lack are null, but for the texts ``alike``
    that hold for all of them."""
    if rows.column_names == schema.names:
        return rows
    zeros = pa.py_buffer(bytes(8 * (rows.num_rows + 1)))  # one for all that are lacking
    there = set(rows.column_names)
    columns = [
        rows.column(field.name)
        if field.name in there
        else _text((alike or {})[field.name], rows.num_rows, zeros)
        if field.name in (alike or {})
        else _nulls(field.type, rows.num_rows, zeros)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names)


def _nulls(kind: pa.DataType, count: int, zeros: pa.Buffer) -> pa.Array:
    """``count`` nulls over a buffer of ``zeros``, 8 bytes for each and one more."""
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, count, [zeros, zeros], children=[pa.nulls(0, kind.value_type)])
    if pa.types.is_string(kind):
        return pa.Array.from_buffers(kind, count, [zeros, zeros, zeros])
    return pa.Array.from_buffers(kind, count, [zeros, zeros])


def _text(text: str, count: int, zeros: pa.Buffer) -> pa.Array:
    """``text``, ``count`` times: as many places of a dictionary of one."""
    places = pa.Array.from_buffers(pa.int32(), count, [None, zeros])
    return pa.DictionaryArray.from_arrays(places, pa.array([text]))
