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
    exp.QueryTransform,  # runs a command for each part of the rows
)
#: Functions of the engines that read files, the environment or run code.
FORBIDDEN_FUNCTIONS = (
    "read_",
    "reflect",
    "java_method",
    "try_reflect",
    "getenv",
    "identifier",  # makes a name of text, also that of another function
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
    _check_nodes(statement)
    _check_tables(statement, allowed)
    return statement


def check_expression(sql: str) -> str:
    """``sql``, if it is one expression without side effects or queries of its own, as it was understood.

    Raises UserError otherwise.
    """
    statement = check(f"SELECT {sql}", ())
    more = [name for name, value in statement.args.items() if value and name != "expressions"]
    if more or len(statement.expressions) != 1 or any(statement.expressions[0].find_all(exp.Query)):
        raise UserError(f"{sql.strip()[:80]} is not one expression", "name one column, or compute one value")
    return str(statement.expressions[0].sql("spark"))


def is_forbidden(function: str) -> bool:
    """Whether an engine's function of that name reads files or the environment, or runs code."""
    name = function.lower()
    return any(name == bad or (bad.endswith("_") and name.startswith(bad)) for bad in FORBIDDEN_FUNCTIONS)


def tables_of(query: exp.Expr) -> set[str]:
    """The names of the tables and views that ``query`` reads, its own WITH clauses left out."""
    known = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    return {table.name.lower() for table in query.find_all(exp.Table)} - known


def _check_nodes(statement: exp.Query) -> None:
    for node in statement.walk():
        if isinstance(node, FORBIDDEN):
            raise UserError(
                f"{node.key.upper()} is not allowed here", "only SELECT is allowed: the lake is read-only here"
            )
        if isinstance(node, exp.Func):
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
            if is_forbidden(name):
                raise UserError(f"the function {name.lower()} is not allowed here", "it reaches outside of the lake")


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
