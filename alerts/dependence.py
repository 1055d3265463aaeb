"""What the answer to a statement depends on: as long as that stays as it was, the statement need not run again.

Whatever is not understood for certain counts as a dependence: a statement that runs once too often costs a millisecond,
one that does not run when it should costs an alert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

#: What gives other values over the same rows: clocks and dice, of either dialect, with parentheses or without.
UNSETTLED = frozenset(
    (
        *("ago", "curdate", "current_date", "current_localtime", "current_localtimestamp", "current_time"),
        *("current_timestamp", "current_timezone", "gen_random_uuid", "get_current_time", "get_current_timestamp"),
        *("localtime", "localtimestamp", "monotonically_increasing_id", "now", "rand", "randn", "random", "randstr"),
        *("reservoir_quantile", "shuffle", "today", "transaction_timestamp", "uniform", "unix_timestamp", "uuid"),
        *("uuidv4", "uuidv7"),
    )
)
_UNSETTLED = re.compile(rf"\b({'|'.join(sorted(UNSETTLED))})\b", re.IGNORECASE)
#: The clauses of a statement that chooses rows one by one, and what may stand in what it shows of them.
_CHOOSING = frozenset(("expressions", "from_", "joins", "where"))
_SHOWN = (
    *(exp.Column, exp.Identifier, exp.Alias, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg, exp.Cast),
    *(exp.DataType, exp.DataTypeParam, exp.Add, exp.Sub, exp.Mul, exp.Div),
)
#: What a condition may be made of that is looked at by itself: nothing in it fails over any row.
_TAME = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg, exp.Not, exp.And, exp.Or),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Abs, exp.Coalesce, exp.Nullif, exp.TryCast, exp.DataType),
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A statement, ``text`` in DuckDB's dialect, over some ``columns`` of one ``table``, without whose rows another has
    none."""

    text: str
    table: str
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Dependence:
    """What the answer to one statement depends on, beside how many rows its tables have.

    ``columns`` are names of columns, of whichever of its tables; None = all there are. ``deciding`` are those that
    decide whether there is any row in the answer at all; None = not known. Unless ``settled``, it depends on a clock
    or on chance as well.
    """

    columns: frozenset[str] | None
    deciding: frozenset[str] | None
    settled: bool


def dependence(query: exp.Query, text: str) -> Dependence:
    """What the answer to ``query`` depends on, which :func:`lake.select.check` let through and runs as ``text``."""
    columns = None if _takes_whole_rows(query) else _identifiers(query)
    return Dependence(columns, None if columns is None else _deciding(query), _UNSETTLED.search(text) is None)


def conditions(text: str) -> tuple[Condition, ...]:
    """What must hold of some row of one table each, or the statement ``text``, in DuckDB's dialect, has no rows.

    They are the conditions that WHERE asks for all of; a statement that may have rows without any, as a sum over none
    has one, has no conditions. Numbers change all the time, what rules out a row often does not.
    """
    try:
        query = sqlglot.parse_one(text, read="duckdb")
    except SqlglotError:
        return ()
    if not isinstance(query, exp.Select) or query.args.get("with_") or not _has_none_of_none(query):
        return ()
    where, tables = query.args.get("where"), _sure_tables(query)
    asked = list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this]) if where is not None else []
    if not all(isinstance(node, _TAME) for one in asked for node in one.walk()):
        return ()
    return tuple(_found(asked, tables, alone=not query.args.get("joins")))


def _found(asked: list[exp.Expr], tables: dict[str, exp.Table], *, alone: bool) -> Iterator[Condition]:
    for one in asked:
        columns = list(one.find_all(exp.Column))
        names = {column.table.lower() for column in columns}
        if not columns or len(names) != 1:
            continue
        (name,) = names
        table = tables.get(name) if name else next(iter(tables.values()), None) if alone else None
        if table is not None:
            text = exp.select("1").from_(table.copy()).where(one.copy()).limit(1).sql("duckdb")
            yield Condition(text, table.name.lower(), frozenset(column.name.lower() for column in columns))


def _has_none_of_none(query: exp.Select) -> bool:
    """Whether there is no row in the answer where no row is chosen: rows are shown one by one, or by their groups."""
    group = query.args.get("group")
    if group is not None:
        others = [name for name, value in group.args.items() if value and name != "expressions"]
        return not others and all(isinstance(one, exp.Column) for one in group.expressions)
    shown = (node for one in query.expressions for node in one.walk())
    return not query.args.get("having") and all(isinstance(node, (*_SHOWN, *_TAME)) for node in shown)


def _sure_tables(query: exp.Select) -> dict[str, exp.Table]:
    """The tables, by the name that they go by, of which each row of the answer has a row."""
    begins, joins = query.args.get("from_"), query.args.get("joins") or ()
    if begins is None or any(join.side in ("RIGHT", "FULL") or join.method for join in joins):
        return {}
    sure = [begins.this, *(join.this for join in joins if not join.side and join.kind in ("", "INNER", "CROSS"))]
    return {one.alias_or_name.lower(): one for one in sure if isinstance(one, exp.Table)}


def _takes_whole_rows(query: exp.Query) -> bool:
    """Whether columns are read that are not named: by a star, by a table's name as a value, by a natural join."""
    if any(not _is_counted(star) for star in query.find_all(exp.Star)):
        return True
    if any(join.args.get("method") for join in query.find_all(exp.Join)):
        return True
    tables = {name.lower() for table in query.find_all(exp.Table) for name in (table.name, table.alias) if name}
    tables |= {alias.name.lower() for alias in query.find_all(exp.TableAlias)}
    return any(column.name.lower() in tables for column in query.find_all(exp.Column))


def _is_counted(star: exp.Star) -> bool:
    above = star.parent
    return isinstance(above, exp.Count) or (isinstance(above, exp.Anonymous) and str(above.this).lower() == "count")


def _deciding(query: exp.Query) -> frozenset[str] | None:
    """The columns on which it depends whether there is a row, where rows are chosen one by one and then shown."""
    if not isinstance(query, exp.Select) or not {name for name, value in query.args.items() if value} <= _CHOOSING:
        return None
    if any(not isinstance(node, _SHOWN) for shown in query.expressions for node in shown.walk()):
        return None
    choosing = [query.args.get("from_"), query.args.get("where"), *(query.args.get("joins") or ())]
    deciding = frozenset[str]().union(*(_identifiers(clause) for clause in choosing if clause is not None))
    # A condition may name what is shown by its alias, and then means the columns behind it.
    aliases = {shown.alias.lower() for shown in query.expressions if isinstance(shown, exp.Alias)}
    return None if deciding & aliases else deciding


def _identifiers(node: exp.Expr) -> frozenset[str]:
    return frozenset(identifier.name.lower() for identifier in node.find_all(exp.Identifier))
