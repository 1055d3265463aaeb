"""Read-only SQL, decided by parsing: one SELECT in Spark's dialect, over known tables, without side effects."""

from __future__ import annotations

import difflib
from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake.errors import UserError, first_line

#: Expressions that change something, or reach outside of the lake, wherever they stand in a statement.
FORBIDDEN: tuple[type[exp.Expression], ...] = (
    exp.Insert,
    exp.Update,
    exp.Delete,
    exp.Merge,
    exp.Create,
    exp.Drop,
    exp.Alter,
    exp.Command,
    exp.Into,
    exp.Copy,
    exp.Set,
    exp.Use,
)
#: Functions of the engines that read files, the environment or run code.
FORBIDDEN_FUNCTIONS = (
    "read_",
    "reflect",
    "java_method",
    "try_reflect",
    "getenv",
    "glob",
    "sniff_csv",
    "parquet_",
    "query",
)


def check(sql: str, allowed: Collection[str]) -> exp.Query:
    """The parsed ``sql``, if it is one read-only query over ``allowed`` tables and views only.

    Raises UserError otherwise: not SQL, several statements, not a query, an unknown table (named with the nearest
    known one), a table function, or a function that reaches outside.
    """
    try:
        statements = [statement for statement in sqlglot.parse(sql, read="spark") if statement is not None]
    except SqlglotError as error:
        raise UserError(
            f"not valid SQL: {first_line(error).rstrip('.')}", "write one SELECT in Spark's dialect"
        ) from error
    if len(statements) != 1:
        raise UserError(f"expected one statement, found {len(statements)}", "write one SELECT in Spark's dialect")
    statement = statements[0]
    if not isinstance(statement, exp.Query):
        raise UserError(f"{statement.key.upper()} is not a query", "only SELECT is allowed: the lake is read-only here")
    for node in statement.walk():
        if isinstance(node, FORBIDDEN):
            raise UserError(
                f"{node.key.upper()} is not allowed here", "only SELECT is allowed: the lake is read-only here"
            )
        if isinstance(node, exp.Func):
            _check_function(node)
    _check_tables(statement, allowed)
    return statement


def tables_of(query: exp.Expr) -> set[str]:
    """The names of the tables and views that ``query`` reads, its own WITH clauses left out."""
    known = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    return {table.name.lower() for table in query.find_all(exp.Table)} - known


def _check_function(function: exp.Func) -> None:
    name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
    if any(name == bad or (bad.endswith("_") and name.startswith(bad)) for bad in FORBIDDEN_FUNCTIONS):
        raise UserError(f"the function {name} is not allowed here", "it reaches outside of the lake")


def _check_tables(statement: exp.Query, allowed: Collection[str]) -> None:
    ctes = {cte.alias_or_name.lower() for cte in statement.find_all(exp.CTE)}
    for table in statement.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.db or table.catalog:
            raise UserError(
                f"{table.sql('spark')} is not a view of the lake", f"use one of {', '.join(sorted(allowed))}"
            )
        name = table.name.lower()
        if name in ctes or name in allowed:
            continue
        near = difflib.get_close_matches(name, list(allowed), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(allowed))}"
        raise UserError(f"no view or table is named {table.name}", hint)
