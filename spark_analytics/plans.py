"""The second look at a statement, by Spark's own parser: what it understood, before anything of it runs.

:mod:`lake.select` decided by another parser. Should the two ever read one text in two ways, this reading counts, too:
kinds of plans and expressions, functions and tables, all by allow-list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from lake.errors import UserError
from lake.sql.functions import judgement

_PACKAGE = "org.apache.spark.sql.catalyst."
_PLANS = frozenset(
    "plans.logical." + name
    for name in (
        *("Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin"),
        *("LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Project", "Sort", "SubqueryAlias", "Union"),
        *("UnresolvedWith", "WithWindowDefinition"),
    )
)
_UNRESOLVED = frozenset(
    "analysis." + name
    for name in (
        *("UnresolvedAlias", "UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction", "UnresolvedHaving"),
        *("UnresolvedGenerator", "UnresolvedOrdinal", "UnresolvedRelation", "UnresolvedStar", "UnresolvedTVFAliases"),
        *("UnresolvedStarExceptOrReplace", "UnresolvedSubqueryColumnAliases", "UnresolvedTableValuedFunction"),
        *("MultiAlias",),
    )
)
_EXPRESSIONS = frozenset(
    "expressions." + name
    for name in (
        *("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder", "UnaryMinus", "UnaryPositive"),
        *("And", "Or", "Not", "In", "InSubquery", "ListQuery", "Exists", "ScalarSubquery", "LateralSubquery"),
        *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "Between"),
        *(
            "IsNull",
            "IsNotNull",
            "IsNaN",
            "Like",
            "ILike",
            "RLike",
            "LikeAll",
            "LikeAny",
            "CaseWhen",
            "Cast",
            "Literal",
        ),
        *(
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "BitwiseNot",
            "Concat",
            "CreateNamedStruct",
            "NamePlaceholder$",
            "Alias",
        ),
        *("AttributeReference", "CurrentDate", "CurrentTimestamp", "TimestampAdd", "TimestampDiff", "Extract"),
        *("LambdaFunction", "UnresolvedNamedLambdaVariable", "SortOrder", "Cube", "Rollup", "GroupingSets"),
        *("WindowExpression", "WindowSpecDefinition", "UnresolvedWindowExpression", "SpecifiedWindowFrame"),
        *("CurrentRow$", "UnboundedPreceding$", "UnboundedFollowing$", "UnspecifiedFrame$", "IntervalExpression"),
        *("aggregate.AggregateExpression", "aggregate.AnyValue", "aggregate.First", "aggregate.Last"),
    )
)
_ALLOWED = frozenset(_PACKAGE + name for name in (*_PLANS, *_UNRESOLVED, *_EXPRESSIONS))
_ONE_NAME = re.compile(r"\[([^\[\],]+)\]")


@dataclass(frozen=True, slots=True)
class Understood:
    """What Spark's parser found in a statement; names are lists in brackets, as Spark prints them."""

    kinds: frozenset[str]
    functions: tuple[str, ...]
    relations: frozenset[str]
    defined: frozenset[str]
    texts: tuple[str, ...]


def understood(session: SparkSession, text: str) -> Understood:
    """What Spark's parser makes of ``text``. Nothing runs. Raises what Spark raises for what is no SQL."""
    session_state: Any = session._jsparkSession.sessionState()
    nodes = list(_nodes(json.loads(session_state.sqlParser().parsePlan(text).toJSON())))
    functions, relations, defined, texts = [], set(), set(), []
    for node in nodes:
        kind = str(node.get("class", "")).removeprefix(_PACKAGE)
        if kind == "analysis.UnresolvedFunction":
            functions.append(str(node["nameParts"]))
        elif kind == "analysis.UnresolvedTableValuedFunction":
            functions.append(str(node["name"]))
        elif kind == "analysis.UnresolvedGenerator":
            functions.append(f"[{node['name'].get('funcName')}]" if isinstance(node["name"], dict) else "")
        elif kind == "analysis.UnresolvedRelation":
            relations.add(str(node["multipartIdentifier"]).lower())
        elif kind == "expressions.Literal" and node["dataType"] == "string":
            texts.append(str(node["value"]))
        elif kind == "plans.logical.UnresolvedWith":
            defined |= {f"[{one['_1']}]".lower() for one in node["cteRelations"]}
    kinds = frozenset(str(node["class"]) for node in nodes if "class" in node)
    return Understood(kinds, tuple(functions), frozenset(relations), frozenset(defined), tuple(texts))


def check_plan(session: SparkSession, text: str, names: Collection[str]) -> None:
    """Raises UserError unless Spark understands ``text`` as a query over ``names``, with allowed functions alone."""
    found = understood(session, text)
    if odd := sorted(found.kinds - _ALLOWED):
        raise UserError(f"{odd[0].rpartition('.')[2]} is not allowed here", "write one plain SELECT over the views")
    for function in found.functions:
        name = _ONE_NAME.fullmatch(function)
        judgement("spark").require(name[1] if name else function)
    for relation in found.relations - {f"[{name}]" for name in names}:
        if relation not in found.defined or not _ONE_NAME.fullmatch(relation):
            raise UserError(f"no view or table is named {relation[1:-1][:80]}", "docs/views.md lists them")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON document, whatever its depth."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield one
            pending += one.values()
        elif isinstance(one, list):
            pending += one
