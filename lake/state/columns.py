"""Columns whose values are replaced in place: of a hundred thousand rows a commit changes a few.

An Arrow table made of them costs no copy of numbers. It shows what came later, too: it holds until the next change.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]


class Column(Protocol):
    """One column of rows that have places 0, 1, 2 …"""

    def put(self, places: Places, values: pa.Array) -> None:
        """Have ``values`` at ``places``: those there already, and new ones that follow on one another."""

    def array(self, count: int) -> pa.Array:
        """The first ``count`` values."""


def column(field: pa.Field, *, repeated: bool, constant: bool) -> Column:
    """An empty column for ``field``; ``constant``, where no row's value changes, and then maybe ``repeated``: of few
    texts, as those are that change."""
    if constant:
        return Constant(pa.dictionary(pa.int32(), field.type) if repeated else field.type)
    if pa.types.is_list(field.type):
        return Lists(field.type)
    return Texts(field.type) if pa.types.is_string(field.type) else Fixed(field.type)


class Fixed:
    """Values of a fixed width."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._width = np.dtype(np.bool_ if pa.types.is_boolean(kind) else f"i{kind.bit_width // 8}")
        if pa.types.is_floating(kind):
            self._width = np.dtype(kind.to_pandas_dtype())
        self._values = np.zeros(0, self._width)
        self._known: npt.NDArray[np.bool_] | None = None  # of each value whether there is one; None: of all

    def put(self, places: Places, values: pa.Array) -> None:
        """See :class:`Column`."""
        if (most := int(places.max(initial=-1))) >= len(self._values):
            room = max(2 * len(self._values), most + 1)
            self._values = _grown(self._values, room)
            self._known = None if self._known is None else _grown(self._known, room)
        if values.null_count and self._known is None:
            self._known = np.ones(len(self._values), np.bool_)
        if self._known is not None:
            self._known[places] = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else True
        self._values[places] = _numbers(values, self._width)

    def array(self, count: int) -> pa.Array:
        """See :class:`Column`."""
        values = self._values[:count]
        known = None if self._known is None else self._known[:count]
        there = None if known is None or known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
        data = np.packbits(values, bitorder="little") if self._width == np.bool_ else values
        return pa.Array.from_buffers(self._kind, count, [there, pa.py_buffer(data)])


class Texts:
    """Few texts, many times."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._codes = Fixed(pa.int32())
        self._code: dict[str, int] = {}

    def put(self, places: Places, values: pa.Array) -> None:
        """See :class:`Column`."""
        coded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        codes = [self._code.setdefault(text, len(self._code)) for text in coded.dictionary.to_pylist()]
        self._codes.put(places, pa.array(codes, pa.int32()).take(coded.indices))

    def array(self, count: int) -> pa.Array:
        """See :class:`Column`."""
        return pa.DictionaryArray.from_arrays(self._codes.array(count), pa.array(list(self._code), self._kind))


class Constant:
    """What is said of a row once and for all."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._parts: list[pa.Array] = []
        self._count = 0

    def put(self, places: Places, values: pa.Array) -> None:
        """See :class:`Column`: what is there stays."""
        new = values.filter(pa.array(places >= self._count))
        if len(new):
            self._parts.append(new.cast(self._kind))
            self._count += len(new)

    def array(self, count: int) -> pa.Array:
        """See :class:`Column`."""
        if len(self._parts) != 1:
            whole = pa.chunked_array(self._parts, self._kind).unify_dictionaries().combine_chunks()
            self._parts = [whole]
        return self._parts[0][:count]


class Lists:
    """Lists of structs of numbers, as list views: what a row said before stays in between until it is half of all."""

    def __init__(self, kind: pa.ListType) -> None:
        self._kind = kind
        self._starts, self._sizes = Fixed(pa.int32()), Fixed(pa.int32())
        self._cells = self._empty()
        self._used = self._count = 0

    def _empty(self) -> list[Fixed]:
        return [Fixed(field.type) for field in self._kind.value_type.fields]

    def put(self, places: Places, values: pa.ListArray) -> None:
        """See :class:`Column`."""
        sizes, cells = pc.list_value_length(values), values.flatten()
        ends = self._used + np.cumsum(pc.fill_null(sizes, 0).to_numpy())
        self._starts.put(places, pa.array(ends - pc.fill_null(sizes, 0).to_numpy(), pa.int32()))
        self._sizes.put(places, sizes)
        at = np.arange(self._used, self._used + len(cells))
        for column, name in zip(self._cells, self._kind.value_type.names, strict=True):
            column.put(at, pc.struct_field(cells, name))
        self._used += len(cells)
        self._count = max(self._count, int(places.max(initial=-1)) + 1)
        if self._used > 2 * (pc.sum(self._sizes.array(self._count)).as_py() or 0):
            self._close_up()

    def _close_up(self) -> None:
        """Let go of what rows said before."""
        starts, sizes = (column.array(self._count) for column in (self._starts, self._sizes))
        lengths = pc.fill_null(sizes, 0).to_numpy()
        ends = np.cumsum(lengths)
        at = pa.array(np.arange(ends[-1]) + np.repeat(starts.to_numpy() - (ends - lengths), lengths))
        said, self._cells = [column.array(self._used).take(at) for column in self._cells], self._empty()
        self._used = len(at)
        for column, values in zip(self._cells, said, strict=True):
            column.put(np.arange(self._used), values)
        self._starts.put(np.arange(self._count), pa.array(ends - lengths, pa.int32()))

    def array(self, count: int) -> pa.Array:
        """See :class:`Column`."""
        cells = pa.StructArray.from_arrays(
            [column.array(self._used) for column in self._cells], fields=self._kind.value_type.fields
        )
        starts, sizes = self._starts.array(count), self._sizes.array(count)
        unknown = sizes.is_null() if sizes.null_count else None
        kind = pa.list_view(self._kind.value_type)
        return pa.ListViewArray.from_arrays(starts, pc.fill_null(sizes, 0), cells, type=kind, mask=unknown)


def _grown(cells: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    grown = np.zeros(room, cells.dtype)
    grown[: len(cells)] = cells
    return grown


def _numbers(values: pa.Array, width: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values as the numbers that stand for them; whatever for a null."""
    if width != np.bool_ and not pa.types.is_floating(values.type):
        values = values.view(f"int{8 * width.itemsize}")
    if values.null_count:
        values = values.fill_null(False if width == np.bool_ else 0)
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers
