"""A formula of the views, written in SQL, as a function over NumPy columns: so that it stands once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

Columns = Mapping[str, Any]
Formula = Callable[[Columns], Any]

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
_MANY: dict[type[exp.Expression], Any] = {exp.Greatest: np.fmax, exp.Least: np.fmin}


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
    return _formula(node)


def _formula(node: Any) -> Formula:
    match node:
        case exp.Column():
            name = node.name
            return lambda columns: columns[name]
        case exp.Literal() | exp.Boolean() | exp.Null():
            value = _constant(node)
            return lambda columns: value
        case exp.Paren():
            return _formula(node.this)
        case exp.Cast():
            inner = _formula(node.this)
            return (lambda columns: inner(columns) * 1.0) if node.to.is_type("double") else inner
        case exp.Floor():
            inner = _formula(node.this)
            return lambda columns: np.floor(inner(columns))
        case exp.Neg():
            inner = _formula(node.this)
            return lambda columns: np.negative(inner(columns))
        case exp.Not():
            inner = _formula(node.this)
            return lambda columns: np.logical_not(inner(columns))
        case exp.Is() if isinstance(node.expression, exp.Null):
            inner = _formula(node.this)
            return lambda columns: _is_null(inner(columns))
        case exp.Case():
            return _case(node)
    operands = [_formula(part) for part in (node.this, *node.args.get("expressions", ()))]
    if type(node) in _BINARY:
        operation, left, right = _BINARY[type(node)], operands[0], _formula(node.expression)
        return lambda columns: operation(left(columns), right(columns))
    if type(node) in _MANY:
        operation = _MANY[type(node)]
        return lambda columns: reduce(operation, (operand(columns) for operand in operands))
    if isinstance(node, exp.Coalesce):
        return lambda columns: reduce(_first_known, (operand(columns) for operand in operands))
    raise ValueError(f"not a formula over columns: {node.sql('spark')}")


def _constant(node: Any) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if node.is_string:
        return node.this
    return float(node.this) if "." in node.this or "e" in node.this.lower() else int(node.this)


def _case(node: exp.Case) -> Formula:
    branches = [(_formula(branch.this), _formula(branch.args["true"])) for branch in node.args["ifs"]]
    default = node.args.get("default")
    otherwise = _formula(default) if default is not None else lambda columns: None

    def chosen(columns: Columns) -> Any:
        values = [value(columns) for _, value in branches] + [otherwise(columns)]
        null = "" if any(_is_text(value) for value in values) else np.nan
        values = [null if value is None else value for value in values]
        result = values[-1]
        for (condition, _), value in zip(reversed(branches), reversed(values[:-1]), strict=True):
            result = np.where(condition(columns), value, result)
        return result

    return chosen


def _is_text(value: Any) -> bool:
    return bool(value.dtype.kind == "U") if isinstance(value, np.ndarray) else isinstance(value, str)


def _is_null(value: Any) -> Any:
    return value == "" if _is_text(value) else np.isnan(value)


def _first_known(one: Any, other: Any) -> Any:
    return np.where(np.isnan(one), other, one)
