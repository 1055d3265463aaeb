"""Parameters of statements: ``:name`` is replaced by a literal before the statement is read, checked and run.

A value becomes one literal, whatever it holds, and stands alone: nothing in it can be read as SQL. What it is then, a
text that is compared or one that is searched for, is the statement's to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime

from lake.errors import UserError
from lake.sql.lexical import scan

Value = str | bool | int | float | datetime | date | None

#: Quoted texts, names and comments, in which a colon is a colon; two colons; a parameter; a letter.
_PIECE = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|::|:(?P<name>[A-Za-z_]\w*)|.",
    re.DOTALL | re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}(?P<fraction>\.\d+)?", re.ASCII)
_WORDS: Mapping[str, Value] = {"true": True, "false": False, "null": None}


def with_values(sql: str, values: Mapping[str, Value]) -> str:
    """``sql`` with each ``:name`` outside of quotes and comments replaced by the literal of its value.

    Raises UserError for a name that has no value. A statement without parameters stays as it is.
    """

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        if name not in values:
            known = ", ".join(f":{one}" for one in sorted(values)) or "none"
            raise UserError(f"the parameter :{name[:80]} has no value", f"there are values for {known}")
        return f" {literal(values[name])} "

    return _PIECE.sub(replaced, sql)


def can_be_named(*texts: str) -> bool:
    """Whether a statement may hold each of ``texts`` as a literal: no control characters, no ``${`` of Spark's."""
    try:
        scan(f"SELECT {', '.join(map(literal, texts))}")
    except UserError:
        return False
    return True


def literal(value: Value) -> str:
    """``value`` as Spark's dialect writes it. UserError for a number that is none."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        return f"'{escaped}'"
    if isinstance(value, datetime):
        instant = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return f"TIMESTAMP '{instant.strftime('%Y-%m-%d %H:%M:%S.%f')}+00:00'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UserError(f"a parameter's value is {value}", "give a finite number")
        return f"CAST({value!r} AS DOUBLE)"
    return f"({value})" if value < 0 else str(value)  # or a minus before it would make a comment


def any_of(texts: Iterable[str]) -> str:
    """``texts`` as a list of literals."""
    return ", ".join(map(literal, texts))


def among(column: str, named: Iterable[tuple[str, str]]) -> str:
    """The condition under which one of ``named`` holds, each a condition and the text that ``column`` must be: texts of
    one condition are listed together, since to understand a condition for each of fifty takes longer than to answer it.
    """
    texts: dict[str, list[str]] = {}
    for condition, text in sorted(set(named)):
        texts.setdefault(condition, []).append(text)
    found = (f"({condition} AND {column} IN ({any_of(those)}))" for condition, those in texts.items())
    return " OR ".join(found) or "FALSE"


def named_values(given: list[str]) -> dict[str, Value]:
    """The values of ``name=value`` words: whole and decimal numbers, true, false and null are such; all else is text.

    A value in single quotes is text whatever it is. Raises UserError for what is no such word, or a name told twice.
    """
    values: dict[str, Value] = {}
    for word in given:
        name, sign, text = word.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise UserError(f"{word[:80]!r} is not name=value", "write --param tenant=acme")
        if name in values:
            raise UserError(f"the parameter {name} has two values", "give it once")
        values[name] = _value(text)
    return values


def _value(text: str) -> Value:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if number := _NUMBER.fullmatch(text):
        return float(text) if number["fraction"] else int(text)
    return text
