"""A formula of the views, written in SQL, as a function over NumPy columns: so that it stands once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

Columns = Mapping[str, Any]
Formula = Callable[[Columns], Any]

_UNARY: dict[type[exp.Expression], Any] = {exp.Floor: np.floor, exp.Neg: np.negative, exp.Not: np.logical_not}
_BINARY: dict[type[exp.Expression], Any] = {
    exp.Add: np.add,
    exp.Sub: np.subtract,
    exp.Mul: np.multiply,
    exp.Pow: np.power,
    exp.Div: np.true_divide,
    exp.GT: np.greater,
    exp.GTE: np.greater_equal,
    exp.LT: np.less,
    exp.LTE: np.less_equal,
    exp.EQ: np.equal,
    exp.And: np.logical_and,
    exp.Or: np.logical_or,
}


@cache
def compiled(sql: str) -> Formula:
    """``sql`` (one expression in Spark's dialect) as a function of its columns, by their last names.

    Numbers, and text that is asked for nulls, or the outcome of a CASE. A null number is NaN, a null text is empty: a
    comparison with NaN is false, which is how a condition takes a null. Raises ValueError for SQL that is more than
    a formula.
    """
    return formula(sqlglot.parse_one(sql, read="spark"))


def formula(node: Any) -> Formula:
    """What :func:`compiled` makes of an expression that was read already."""
    return _Compiler().formula(node)


class _Compiler:
    """Lays down what a formula consists of, one operation after the other; what stands in it twice is done once."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}
        self._known: list[Any] = []  # of each place its value, if it is a constant
        self._columns: list[tuple[int, str]] = []
        self._operations: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []

    def formula(self, node: Any) -> Formula:
        """``node`` as a function."""
        outcome = self._place(node)
        known, columns_read, operations = self._known, self._columns, self._operations

        def worked_out(columns: Columns) -> Any:
            values = known.copy()
            for place, name in columns_read:
                values[place] = columns[name]
            for place, operation, operands in operations:
                values[place] = operation(*[values[operand] for operand in operands])
            return values[outcome]

        return worked_out

    def _place(self, node: Any) -> int:
        """Where the value of ``node`` will be."""
        match node:
            case exp.Column():
                if node.name not in self._places:
                    self._columns.append((len(self._known), node.name))
                return self._placed(node.name)
            case exp.Literal() | exp.Boolean() | exp.Null():
                value = _constant(node)
                return self._placed((type(value), value), value)
            case exp.Paren():
                return self._place(node.this)
            case exp.Cast():
                inner = self._place(node.this)
                return self._done(_as_double, inner) if node.to.is_type("double") else inner
            case exp.Is() if isinstance(node.expression, exp.Null):
                return self._done(_is_null, self._place(node.this))
            case exp.Case():
                parts = [part for branch in node.args["ifs"] for part in (branch.this, branch.args["true"])]
                return self._done(_chosen, *map(self._place, (*parts, node.args.get("default") or exp.Null())))
        if type(node) in _UNARY:
            return self._done(_UNARY[type(node)], self._place(node.this))
        if type(node) in _BINARY:
            return self._done(_BINARY[type(node)], self._place(node.this), self._place(node.expression))
        if type(node) in _MANY:
            operands = map(self._place, (node.this, *node.args.get("expressions", ())))
            return reduce(partial(self._done, _MANY[type(node)]), operands)
        raise ValueError(f"not a formula over columns: {node.sql('spark')}")

    def _done(self, operation: Callable[..., Any], *operands: int) -> int:
        """Where what ``operation`` comes to will be."""
        if (operation, operands) not in self._places:
            self._operations.append((len(self._known), operation, operands))
        return self._placed((operation, operands))

    def _placed(self, what: Any, value: Any = None) -> int:
        """The place of ``what``, which is given one if it has none."""
        if what not in self._places:
            self._places[what] = len(self._known)
            self._known.append(value)
        return self._places[what]


def _constant(node: Any) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if node.is_string:
        return node.this
    return float(node.this) if "." in node.this or "e" in node.this.lower() else int(node.this)


def _chosen(*parts: Any) -> Any:
    """A CASE: conditions, each before its value, then what is chosen where none of them is true."""
    conditions, values = parts[:-1:2], [*parts[1::2], parts[-1]]
    null = "" if any(_is_text(value) for value in values) else np.nan
    values = [null if value is None else value for value in values]
    result = values[-1]
    for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
        result = np.where(condition, value, result)
    return result


def _as_double(value: Any) -> Any:
    return value * 1.0


def _is_text(value: Any) -> bool:
    return bool(value.dtype.kind == "U") if isinstance(value, np.ndarray) else isinstance(value, str)


def _is_null(value: Any) -> Any:
    return value == "" if _is_text(value) else np.isnan(value)


def _first_known(one: Any, other: Any) -> Any:
    return np.where(np.isnan(one), other, one)


_MANY: dict[type[exp.Expression], Any] = {exp.Greatest: np.fmax, exp.Least: np.fmin, exp.Coalesce: _first_known}
