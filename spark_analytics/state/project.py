"""The select lists of a public view's SQL as functions over NumPy columns: what a row comes to, without a query engine.

A plan for a handful of rows costs a query engine more than all that the rows say; the definition stays the view's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from lake.definitions import Definitions
from lake.formula import formula
from lake.views import VIEWS, render
from spark_analytics.fold.arrays import Array

Columns = dict[str, Any]


@lru_cache(maxsize=16)
def projection(name: str, definitions: Definitions, named: tuple[str, ...]) -> Projection:
    """The one of view ``name`` under ``definitions`` through ``named``, read once: that takes ten milliseconds."""
    return Projection(name, definitions, named)


class Projection:
    """The columns of view ``name`` that are worked out row by row, from those of the stage that it stands on.

    ``named``: the parts of its WITH, in order, through which those columns go. Columns that are taken over as they are,
    or are no numbers, are left to the caller.
    """

    def __init__(self, name: str, definitions: Definitions, named: tuple[str, ...]) -> None:
        view = sqlglot.parse_one(render(VIEWS[name], definitions), read="spark")
        parts = {part.alias: part.this for part in view.find_all(exp.CTE)}
        lists = [_worked_out(select) for select in (*(parts[part] for part in named), view)]
        self._steps = [{column: formula(node) for column, node in each.items()} for each in lists]
        nodes = [node for each in lists for node in each.values()]
        self.columns = frozenset(column for each in lists for column in each)
        self.reads = frozenset(column.name for node in nodes for column in node.find_all(exp.Column)) - {
            column for each in lists[:-1] for column in each if not _reads_itself(each, column)
        }

    def __call__(self, columns: Mapping[str, Any]) -> Columns:
        """What each of :attr:`columns` comes to, from those that it :attr:`reads`: a null is NaN, or an empty text."""
        env: Columns = dict(columns)
        with np.errstate(all="ignore"):
            for step in self._steps:
                env |= {name: work_out(env) for name, work_out in step.items()}
        return {name: env[name] for name in self.columns}


def _worked_out(select: Any) -> dict[str, Any]:
    return {
        column.alias: column.this
        for column in select.expressions
        if isinstance(column, exp.Alias) and column.this.find(exp.Nullif, exp.Anonymous) is None
    }


def _reads_itself(formulas: Mapping[str, Any], name: str) -> bool:
    return any(column.name == name for node in formulas.values() for column in node.find_all(exp.Column))


def numpy_of(rows: pa.Table, name: str) -> Array:
    """Column ``name`` for formulas: numbers as floats where there are nulls, texts with an empty one for null."""
    column = rows.column(name)
    if column.null_count == len(column) and not pa.types.is_string(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        return np.array(column.fill_null("").to_pylist(), np.str_)
    return np.asarray(column.to_numpy())


def array_of(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    """What a formula came to as ``count`` values of ``kind``."""
    values = np.asarray(values)
    if values.shape != (count,):
        values = np.broadcast_to(values, (count,))
    if values.dtype.kind == "U":
        return pa.array(values.tolist(), pa.string(), mask=values == "")
    if values.dtype.kind in "biu":
        return of_kind(pa.array(values), kind)
    unknown = np.isnan(values)
    if pa.types.is_floating(kind):
        return pa.array(values, kind, mask=unknown)
    whole = np.where(unknown, 0, values).astype(np.int64)
    return of_kind(pa.array(whole, mask=unknown), kind)


def of_kind(column: Any, kind: pa.DataType) -> Any:
    """``column`` as values of ``kind``; as it is where it has them: a cast of few rows costs as much as one of many."""
    return column if column.type == kind else column.cast(kind)
