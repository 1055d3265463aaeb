"""What a rule's expression returned, in columns: which of them are labels, which is the value, what feeds annotations.

A rule may match ten thousand rows a round, of which most were there before. Columns are compared and read whole; a row
becomes an object when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from alerts.models import fingerprint
from alerts.rules.expression import VALUE, is_text
from alerts.rules.model import Rule
from alerts.state import NOTHING, Row, RuleError

Places = npt.NDArray[np.int64]
#: Between the labels of a row in its key: no UTF-8 has it.
_BETWEEN = b"\xff"


class Identities:
    """Label sets seen before, with their fingerprints: a rule's rows come and go, and come again."""

    MOST = 200_000

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, ...], tuple[dict[str, str], str]] = {}
        self._read: tuple[pa.Table, Answer] | None = None

    def answer(self, table: pa.Table | Answer) -> Answer:
        """What ``table`` says; the very table that was asked about last is not read again. RuleError as of Answer."""
        if isinstance(table, Answer):
            return table
        if self._read is None or self._read[0] is not table:
            self._read = table, Answer(table)
        return self._read[1]

    def of(self, names: Sequence[str], values: tuple[str | None, ...], rule: Rule) -> tuple[dict[str, str], str]:
        """The labels of a row, and their fingerprint; null and empty columns are absent, the rule's labels win."""
        if (known := self._known.get(values)) is not None:
            return known
        labels = {name: value for name, value in zip(names, values, strict=True) if value}
        labels = {**labels, **rule.labels, "alertname": rule.name}
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[values] = labels, fingerprint(labels)
        return self._known[values]


class Answer:
    """The rows of one evaluation: text columns are labels, ``value`` is the number, the others feed annotations.

    Raises RuleError where the table is none of a rule.
    """

    __slots__ = ("_extras", "_keys", "_labels", "_values", "count", "names")

    def __init__(self, table: pa.Table) -> None:
        self.names, label_at, value_at, extras = _parts(table.schema)
        self.count: int = table.num_rows
        self._labels = [_whole(_cast(table.column(i), pa.string())) for i in label_at]
        self._values: pa.Array | Sequence[float] = _numbers(table.column(value_at))
        self._extras: dict[str, Any] = {name: _plain(name, table.column(i)) for name, i in extras}
        self._keys: pa.Array | None = None

    @classmethod
    def of(cls, labels: Mapping[str, pa.Array], values: Sequence[float], extras: Mapping[str, Sequence[Any]]) -> Answer:
        """The same from columns that are at hand, for who asks thousands of times a second what a few rows say: texts
        by name, a number a row, and by name what feeds annotations."""
        found = cls.__new__(cls)
        found.count, found.names, found._labels = len(values), tuple(labels), list(labels.values())
        found._values, found._extras, found._keys = values, dict(extras), None
        return found

    def row(self, place: int, rule: Rule, identities: Identities) -> Row:
        """The row at ``place``, the first being 0."""
        labels = tuple(column[place].as_py() for column in self._labels)
        return Row(*identities.of(self.names, labels, rule), *self.numbers(place))

    def rows(self, rule: Rule, identities: Identities) -> list[Row]:
        """All of them, in order."""
        labels = zip(*(column.to_pylist() for column in self._labels), strict=True) if self._labels else None
        known = [identities.of(self.names, one, rule) for one in labels or [()] * self.count]
        values = self._values.to_pylist() if isinstance(self._values, pa.Array) else self._values
        if not self._extras:
            return [Row(*one, value) for one, value in zip(known, values, strict=True)]
        extras = zip(*(list(map(_python, column)) for column in self._extras.values()), strict=True)
        names = tuple(self._extras)
        return [
            Row(*one, value, dict(zip(names, extra, strict=True)))
            for one, value, extra in zip(known, values, extras, strict=True)
        ]

    def numbers(self, place: int) -> tuple[float | None, Mapping[str, object]]:
        """What may be another with each evaluation: the value, and the columns that feed annotations."""
        extra = {name: _python(column[place]) for name, column in self._extras.items()} if self._extras else NOTHING
        return _python(self._values[place]), extra

    def has_labels_of(self, other: Answer) -> bool:
        """Whether both have the same labels in the same rows."""
        return self is other or (
            (self.names, self.count) == (other.names, other.count)
            and all(mine.equals(theirs) for mine, theirs in zip(self._labels, other._labels, strict=True))
        )

    def places_in(self, other: Answer) -> Places:
        """For each row, which one of ``other`` has the same labels; -1: none. Both have columns of the same names."""
        found = pc.index_in(self._key(), value_set=other._key())
        return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)

    def _key(self) -> pa.Array:
        """The labels of each row in one value, equal where they are."""
        if self._keys is None:
            columns = [column.cast(pa.binary()) for column in self._labels] or [pa.array([b""] * self.count)]
            parts = (*columns, pa.scalar(_BETWEEN, pa.binary()))
            self._keys = pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement=b"")
        return self._keys


@lru_cache(1_000)
def _parts(schema: pa.Schema) -> tuple[tuple[str, ...], tuple[int, ...], int, tuple[tuple[str, int], ...]]:
    """The names of the labels, their columns, the value's, and the names and columns of all others; a rule's answers
    mostly have one schema. RuleError where there is no value."""
    names = [name.lower() for name in schema.names]
    if VALUE not in names:
        raise RuleError("the expression returned no column named value")
    label_at = tuple(i for i, type_ in enumerate(schema.types) if is_text(type_) and names[i] != VALUE)
    extras = tuple((name, i) for i, name in enumerate(names) if i not in label_at and name != VALUE)
    return tuple(names[i] for i in label_at), label_at, names.index(VALUE), extras


def is_number(type_: pa.DataType) -> bool:
    """Whether a column of this type can be a ``value``."""
    return any(one(type_) for one in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean))


def _numbers(column: pa.ChunkedArray) -> pa.Array:
    """Floats; what is not a number is null."""
    if not is_number(column.type) and not types.is_null(column.type):
        raise RuleError(f"value must be a number, but is {column.type}")
    numbers = _whole(_cast(column, pa.float64(), safe=False))
    # Mostly none is, and few rows are asked about quicker by NumPy.
    if np.isnan(numbers.to_numpy(zero_copy_only=False)).any():
        return pc.if_else(pc.is_nan(numbers), None, numbers)
    return numbers


def _plain(name: str, column: pa.ChunkedArray) -> pa.Array | list[Any]:
    """What templates can reckon with: decimals, which SQL makes of literals and sums, as floats. Numbers and instants
    stay a column, known to be readable to the last; of anything else the values are made at once."""
    try:
        if types.is_decimal(column.type):
            column = column.cast(pa.float64())
        if types.is_timestamp(column.type) and column.type.unit != "ns":
            for limit in pc.min_max(column).values():
                limit.as_py()
        elif not (is_number(column.type) or types.is_null(column.type)):
            return list(column.to_pylist())
        return _whole(column)
    except (OverflowError, ValueError) as error:  # infinity, and other instants that no calendar has
        raise RuleError(f"column {name} cannot be read: {error}") from error


def _python(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _cast(column: pa.ChunkedArray, type_: pa.DataType, *, safe: bool = True) -> pa.ChunkedArray:
    return column if column.type == type_ else column.cast(type_, safe=safe)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array, that can be read by place."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
