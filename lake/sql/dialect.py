"""The dialect in which statements are checked and run: Spark's, every function by the name that was written."""

from __future__ import annotations

from typing import Any, ClassVar, TypeGuard

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel
from sqlglot.generators.spark import SparkGenerator
from sqlglot.helper import seq_get
from sqlglot.parsers.spark import SparkParser

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
#: Special forms: their arguments are no list of expressions.
_FORMS = ("CAST", "TRY_CAST", "EXTRACT")

#: Functions whose first argument of three is a word, and no column.
_WITH_UNIT = frozenset(("dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff"))
_UNITS = frozenset(
    (
        *("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR"),
        *("DAY", "DAYOFYEAR", "WEEK", "MONTH", "QUARTER", "YEAR"),
    )
)


def text_literal(text: str) -> str:
    """``text`` as Spark reads it in a statement."""
    return f"'{text.translate(_ESCAPES)}'"


class _Parser(SparkParser):
    # Known functions would become others that mean nearly the same.
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {name: SparkParser.FUNCTION_PARSERS[name] for name in _FORMS}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")
    }


class _Generator(SparkGenerator):
    # A WITH clause stays where it stands.
    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        first = seq_get(expression.expressions, 0)
        if expression.name.lower() in _WITH_UNIT and len(expression.expressions) == 3 and _is_unit(first):
            rest = ", ".join(self.sql(argument) for argument in expression.expressions[1:])
            return f"{expression.name}({first.name.upper()}, {rest})"
        return super().anonymous_sql(expression)

    def literal_sql(self, expression: exp.Literal) -> str:
        text = str(expression.this or "")
        return text_literal(text) if expression.is_string else text


def _is_unit(node: exp.Expr | None) -> TypeGuard[exp.Expr]:
    return isinstance(node, exp.Column | exp.Var) and node.name.upper() in _UNITS


class Canonical(Spark):
    """Spark's dialect, for statements that are checked."""

    Parser = _Parser
    Generator = _Generator


def render(tree: exp.Expr) -> str:
    """``tree`` as text for Spark: in one line, without comments, every name in quotes.

    Raises sqlglot's UnsupportedError for what Spark does not have.
    """
    return str(
        tree.sql(
            Canonical, identify=True, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.RAISE
        )
    )
