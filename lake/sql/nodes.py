"""What a statement may consist of: kinds of syntax by allow-list, tables by their exact names."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from sqlglot import exp

from lake.errors import UserError
from lake.sql.dialect import render
from lake.sql.functions import judgement

#: A statement whose syntax tree is deeper is refused: engines would run out of stack.
MOST_DEEP = 300

_QUERIES = (
    *(exp.Select, exp.From, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset),
    *(exp.Distinct, exp.Join, exp.Subquery, exp.CTE, exp.With, exp.Union, exp.Intersect, exp.Except, exp.Table),
    *(exp.TableAlias, exp.Lateral, exp.Values, exp.Cube, exp.Rollup, exp.GroupingSets),
)
_OPERATORS = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.Paren, exp.Tuple),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In),
    *(exp.And, exp.Or, exp.Not, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape),
    *(exp.Exists, exp.Case, exp.If, exp.Dot, exp.Bracket),
)
_VALUES = (
    *(exp.Column, exp.Identifier, exp.Star, exp.Alias, exp.Literal, exp.Boolean, exp.Null, exp.Lambda),
    *(
        exp.Cast,
        exp.TryCast,
        exp.DataType,
        exp.DataTypeParam,
        exp.ColumnDef,
        exp.Interval,
        exp.IntervalSpan,
        exp.Var,
        exp.Extract,
    ),
    *(exp.Anonymous, exp.Window, exp.WindowSpec, exp.WithinGroup, exp.Filter, exp.IgnoreNulls, exp.RespectNulls),
    *(exp.CurrentDate, exp.CurrentTimestamp),
)
_ALLOWED = frozenset((*_QUERIES, *_OPERATORS, *_VALUES))
_MODIFIERS = (
    *("pivots", "sample", "version", "when", "only", "partition", "hints", "joins", "laterals", "rows_from"),
    *("ordinality", "changes", "format", "pattern", "index"),
)
_GENERATORS = frozenset(
    (
        *("explode", "explode_outer", "posexplode", "posexplode_outer"),
        *("inline", "inline_outer", "stack", "json_tuple"),
    )
)
#: Functions that may stand for a table.
_TABLE_FUNCTIONS = frozenset({"range"})
#: Names that Spark takes for functions without parentheses, or for the place of a file, where no column has them.
_RESERVED = frozenset(
    ("current_user", "current_catalog", "current_database", "current_schema", "session_user", "user", "_metadata")
)


def check_nodes(statement: exp.Query, allowed: Collection[str]) -> None:
    """Raises UserError unless ``statement`` consists of known syntax, functions and ``allowed`` tables alone."""
    pending: list[tuple[exp.Expr, int]] = [(statement, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MOST_DEEP:
            raise UserError("the statement is nested too deeply", "name parts of it by WITH")
        _check_node(node)
        if isinstance(node, exp.Table):
            _check_table(node, allowed)
        pending += [(child, depth + 1) for child in node.iter_expressions()]


def _check_node(node: exp.Expr) -> None:
    if isinstance(node, exp.Placeholder | exp.Parameter):
        raise UserError("parameters have no values here", "write the value itself")
    if type(node) not in _ALLOWED:
        raise UserError(f"{node.key.upper()} is not allowed here", "write one plain SELECT over the views")
    if isinstance(node, exp.Anonymous):
        if not isinstance(node.this, str) or isinstance(node.parent, exp.Dot):
            raise UserError("a function is called by a quoted or qualified name", "call functions by plain names")
        judgement("spark").require(node.this, len(node.expressions))
    elif isinstance(node, exp.Lateral):
        generates = isinstance(node.this, exp.Anonymous) and str(node.this.this).lower() in _GENERATORS
        if not generates and not isinstance(node.this, exp.Subquery):
            raise UserError("LATERAL is not allowed here", "write LATERAL VIEW explode(…), or LATERAL (SELECT …)")
    elif isinstance(node, exp.Select) and not node.expressions:
        raise UserError("nothing is selected", "write SELECT and what you want to see")
    elif isinstance(node, exp.Values) and not isinstance(node.parent, (exp.From, exp.Join, type(None))):
        raise UserError("VALUES is not allowed here", "write FROM VALUES (…) AS t(…)")  # Spark sees a call of it
    elif isinstance(node, exp.With) and node.recursive:
        raise UserError("WITH RECURSIVE is not allowed here", "write WITH")
    elif isinstance(node, exp.Column) and node.name.lower() in _RESERVED and not node.table:
        raise UserError(f"the column {node.name} is not allowed here", "it tells of the session, not of the lake")


def _check_table(table: exp.Table, allowed: Collection[str]) -> None:
    written = render(table)
    if any(table.args.get(modifier) for modifier in _MODIFIERS):
        raise UserError(f"{written[:80]} is more than a table", "name the table alone")
    if isinstance(table.this, exp.Anonymous) and str(table.this.this).lower() in _TABLE_FUNCTIONS:
        return
    if not isinstance(table.this, exp.Identifier) or table.db or table.catalog:
        raise UserError(f"{written[:80]} is not a view of the lake", f"use one of {', '.join(sorted(allowed))}")
    name = table.name.lower()
    if table.name.isascii() and (name in allowed or _is_named_above(table, name)):
        return
    near = difflib.get_close_matches(name, list(allowed), n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(allowed))}"
    raise UserError(f"no view or table is named {table.name[:80]}", hint)


def _is_named_above(table: exp.Table, name: str) -> bool:
    """Whether a WITH clause in whose scope ``table`` stands defines ``name``."""
    below: exp.Expr = table
    above = table.parent
    while above is not None:
        if isinstance(above, exp.With):
            # Inside of a WITH clause, what was defined before.
            earlier = above.expressions[: above.expressions.index(below)] if below in above.expressions else []
            if any(cte.alias.lower() == name for cte in earlier):
                return True
        elif isinstance(above, exp.Query):
            clause = above.args.get("with_") or above.args.get("with")
            if clause is not None and clause is not below and any(c.alias.lower() == name for c in clause.expressions):
                return True
        below, above = above, above.parent
    return False
