"""What Spark's own parser makes of a canonical statement: no tree of ours, and no reading of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lake.select import check, tables_of
from lake.sql.functions import is_allowed_function
from tests.security.fuzz.figures import Findings, teller
from tests.security.fuzz.judging import KNOWN, called

_CLASS = re.compile(r'"class":"(?:[a-z]+\.)+(\w+)')
_FUNCTION = re.compile(r'UnresolvedFunction","num-children":\d+,"nameParts":"\[([^\]]*)\]"')
_RELATION = re.compile(r'UnresolvedRelation","num-children":\d+,"multipartIdentifier":"\[([^\]]*)\]"')
_GENERATED = re.compile(r'UnresolvedTableValuedFunction","num-children":\d+,"name":"\[([^\]]*)\]"')
#: Nodes that do something, reach elsewhere, or name things by values.
_NEVER = re.compile(
    r"Insert|Command|Transformation|Hint|Identifier$|Parameter|TimeTravel|Create(?!NamedStruct|Array|Map)|Delete|Update|Merge|Cache|Stream|Pivot"
    r"|Sample|Statement$|Execute|Variable(?!s)|Drop|Alter"
)
_HARMLESS = {"UnresolvedNamedLambdaVariable"}


def read(parser: Any, text: str) -> str:
    """What is wrong with ``text`` as Spark's parser sees it; empty if nothing, or if Spark refuses it."""
    from py4j.protocol import Py4JJavaError

    try:
        tree = parser.parsePlan(text).toJSON()
    except Exception as error:  # captured by pyspark, or py4j's own
        java = error.java_exception.getClass().getName() if isinstance(error, Py4JJavaError) else type(error).__name__
        return "" if "Parse" in java else f"Spark's parser ends with {java}"
    for name in set(_CLASS.findall(tree)) - _HARMLESS:
        if _NEVER.search(name):
            return f"Spark sees {name}"
    ours = {name.lower() for name in called(text)}
    for name in {name.lower() for name in _FUNCTION.findall(tree)}:
        if not is_allowed_function(name):
            return f"Spark sees a call of {name}"
        if re.fullmatch(r"\w+", name) and name not in ours and not _is_sign(name):
            return f"Spark alone sees a call of {name}"
    for name in _GENERATED.findall(tree):
        if name.lower() not in ours or not is_allowed_function(name.lower()):
            return f"Spark sees the table function {name}"
    named = {name.lower() for name in re.findall(r'AliasIdentifier","name":"([^"]*)"', tree)}
    for name in {name.lower() for name in _RELATION.findall(tree)}:
        if name not in KNOWN and name not in named:
            return f"Spark sees the table {name}"
    return "" if _tables(tree, named) <= _ours(text) else f"Spark sees other tables: {_tables(tree, named)}"


def _tables(tree: str, named: set[str]) -> set[str]:
    return {name.lower() for name in _RELATION.findall(tree)} - named


def _ours(text: str) -> set[str]:
    return tables_of(check(text, KNOWN))


def _is_sign(name: str) -> bool:
    """Functions by which Spark's parser writes operators."""
    signs = {"concat", "count", "array_contains", "date_add", "timestampadd", "timestampdiff", "regexp", "like"}
    return name in {*signs, "between"}


def compare(findings: Findings, session: Any, texts: Sequence[str]) -> None:
    """Let the parser of ``session`` read every one of ``texts``."""
    parser = session._jsparkSession.sessionState().sqlParser()
    tell, wrong = teller("read by Spark", len(texts)), 0
    for number, text in enumerate(texts, start=1):
        if words := read(parser, text):
            wrong += 1
            findings.fault(f"{words}: {text!r}")
        tell(number)
    findings.count("statements_read_by_spark", len(texts), "statements")
    findings.count("statements_read_otherwise_by_spark", wrong, "statements")
