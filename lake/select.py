"""Read-only SQL, decided by parsing: one SELECT in Spark's dialect, over known tables, without side effects.

What runs is never the text that was sent. It is read, written anew in one line without comments and hints, read again,
and that reading is checked against allow-lists: of syntax, of functions, of tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError, UnsupportedError

from lake.errors import UserError, first_line
from lake.sql.dialect import Canonical, render
from lake.sql.functions import is_allowed_function, judgement
from lake.sql.lexical import MOST_CHARACTERS, calls, scan
from lake.sql.nodes import check_nodes

__all__ = [
    "canonical",
    "check",
    "check_expression",
    "for_duckdb",
    "is_allowed_function",
    "limited",
    "tables_of",
    "with_values",
    "without_values",
]

_ONE = "write one SELECT in Spark's dialect"
#: What statements that are asked again and again have another of each time: instants in microseconds, from 2001 to
#: 2286, and names packed into one literal, where no character of them is written differently in another dialect.
_VALUE = re.compile(r"\b[1-9]\d{15}\b|(?<=\bexplode\(split\(')[\w .:/@\uE000-\uF8FF-]*(?=', ')")
#: What stands for the nth.
_STANDS_FOR = re.compile(r"\b80000000000000(\d\d)\b")


def check(sql: str, allowed: Collection[str]) -> exp.Query:
    """The canonical form of ``sql``, parsed, if it is one read-only query over ``allowed`` tables and views only.

    Raises UserError otherwise: not SQL, several statements, not a query, an unknown table (named with the nearest
    known one), or a function that is not known to be harmless.
    """
    return _checked(sql, frozenset(allowed))[1].copy()


def canonical(sql: str, allowed: Collection[str]) -> str:
    """``sql`` as it may run, in Spark's dialect: rendered from what was understood and checked. Raises as check."""
    return _canonical(sql, frozenset(allowed))


@lru_cache(maxsize=2048)
def _canonical(sql: str, allowed: frozenset[str]) -> str:
    return _checked(sql, allowed)[0]


def limited(sql: str, allowed: Collection[str], rows: int) -> str:
    """As :func:`canonical`, but of the first ``rows`` rows at most. Raises as check."""
    query = check(sql, allowed)
    own = query.args.get("limit")
    if own is None:
        query = query.limit(rows)
    elif not (own.expression.is_int and int(own.expression.name) <= rows):
        query = exp.select("*").from_(query.subquery("asked")).limit(rows)
    return canonical(render(query), allowed)


def check_expression(sql: str) -> str:
    """``sql``, if it is one expression without side effects or queries of its own, as it was understood.

    Raises UserError otherwise.
    """
    statement = _checked(f"SELECT {sql}", frozenset())[1]
    more = [name for name, value in statement.args.items() if value and name != "expressions"]
    if more or len(statement.expressions) != 1 or any(statement.expressions[0].find_all(exp.Query)):
        raise UserError(f"{sql.strip()[:80]} is not one expression", "name one column, or compute one value")
    return render(statement.expressions[0])


def without_values(sql: str) -> tuple[str, tuple[str, ...]]:
    """``sql`` with the same numbers in place of its instants and packed names, and these: whoever asks the same of
    each moment, or of others, has it understood once. :func:`with_values` puts them back into what was made of it, in
    either dialect."""
    found = tuple(_VALUE.findall(sql))
    if not 0 < len(found) <= 100 or len(sql) > MOST_CHARACTERS or _STANDS_FOR.search(sql):
        return sql, ()
    numbers = iter(range(len(found)))
    return _VALUE.sub(lambda _: f"80000000000000{next(numbers):02d}", sql), found


def with_values(text: str, values: tuple[str, ...]) -> str:
    """``text`` with these ``values``, as :func:`without_values` told them."""
    return _STANDS_FOR.sub(lambda one: values[int(one[1])], text) if values else text


@lru_cache(maxsize=2048)
def for_duckdb(text: str) -> str:
    """``text``, which :func:`canonical` gave, in DuckDB's dialect. Raises UserError where it calls what it must not."""
    try:
        tree = sqlglot.parse_one(text, read="spark")
        translated = str(tree.sql("duckdb", comments=False, unsupported_level=ErrorLevel.RAISE))
    except Exception as error:  # sqlglot trips over calls with too few arguments in many ways
        raise UserError(f"only Spark can answer this: {first_line(error)}", "ask by `sojourn sql`") from error
    known = judgement("duckdb")
    for name in calls(translated, "duckdb"):
        if not known.judged(name.lower()):
            raise UserError(f"only Spark has the function {name.lower()}", "ask by `sojourn sql`")
        known.require(name)
    return translated


def tables_of(query: exp.Expr) -> set[str]:
    """The names of the tables and views that ``query`` reads, its own WITH clauses left out."""
    known = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    tables = (table for table in query.find_all(exp.Table) if isinstance(table.this, exp.Identifier))
    return {table.name.lower() for table in tables} - known


@lru_cache(maxsize=4)  # trees are large; who asks for the text and the tree of a statement does so at once
def _checked(sql: str, allowed: frozenset[str]) -> tuple[str, exp.Query]:
    scan(sql)
    try:
        text = render(_without_hints(_one_query(sql)))
        statement = _one_query(text)
        if render(statement) != text:
            raise UserError("the statement can be read in several ways", "write it more plainly")
        if "${" in text:  # Spark would put a variable's value there, of its settings or its environment
            raise UserError("a name holds ${", "leave it out")
        check_nodes(statement, allowed)
        for name in calls(text, "spark"):
            judgement("spark").require(name)
    except UnsupportedError as error:
        raise UserError(f"Spark has no such thing: {first_line(error).rstrip('.')}", _ONE) from error
    except (RecursionError, TokenError) as error:  # the tokenizer reports a lack of stack as its own error
        raise UserError("the statement is nested too deeply", "name parts of it by WITH") from error
    except UserError:
        raise
    except Exception as error:  # sqlglot trips in many ways over what is no SQL
        raise UserError(f"not understood: {first_line(error)[:80]}", _ONE) from error
    return text, statement


def _one_query(sql: str) -> exp.Query:
    try:
        statements = [statement for statement in sqlglot.parse(sql, read=Canonical) if statement is not None]
    except ParseError as error:
        raise UserError(f"not valid SQL{_place(error)}", _ONE) from error
    if len(statements) != 1:
        raise UserError(f"expected one statement, found {len(statements)}", _ONE)
    statement = statements[0]
    if not isinstance(statement, exp.Query):
        raise UserError(f"{statement.key.upper()} is not a query", "only SELECT is allowed: the lake is read-only here")
    return statement


def _place(error: ParseError) -> str:
    """Where in the statement sqlglot stopped."""
    if not error.errors:
        return ""
    at = error.errors[0]
    return f" near {str(at['highlight'])[:40]!r} (line {at['line']}, column {at['col']})"


def _without_hints(statement: exp.Query) -> exp.Query:
    for query in statement.find_all(exp.Select):
        query.set("hint", None)
    return statement
