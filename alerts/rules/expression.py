"""What a rule's ``expr`` may be: one read-only SELECT over the views that yields labels (text) and a ``value``.

An expression may name parameters: ``:evaluation_time`` (data time), ``:target_seconds`` and ``:window_seconds``
(the lake's definitions), and its rule's own thresholds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.types as types

from alerts.memory import Memory, MemoryQueryError
from lake.definitions import Definitions
from lake.errors import UserError
from lake.schema import HISTOGRAM, TIMESTAMP
from lake.select import check, tables_of
from lake.tables import TABLES
from lake.views import VIEWS

PARAMETERS = ("evaluation_time", "target_seconds", "window_seconds")
_PARAMETER = re.compile(rf":({'|'.join(PARAMETERS)})\b")
VALUE = "value"
_USED = r"(?<![:\w]):{}\b"

#: What only the engine knows, readable by rules like any view. They are never stale: rules over them alone
#: are how the engine tells of stale data and of failing rules.
ENGINE_VIEWS: dict[str, pa.Schema] = {
    "data_freshness": pa.schema(
        [
            ("broker", pa.string()),
            ("as_of", TIMESTAMP),
            ("age_seconds", pa.float64()),
            ("stale", pa.bool_()),
            ("sampled", pa.bool_()),
        ]
    ),
    "sampled_tenants": pa.schema(
        [
            ("broker", pa.string()),
            ("queue", pa.string()),
            ("subscriber", pa.string()),
            ("tenant", pa.string()),
            ("sampled_at", TIMESTAMP),
            ("depth", pa.int64()),
            ("in_flight", pa.int64()),
            ("delayed", pa.int64()),
            ("oldest_age_seconds", pa.float64()),
        ]
    ),
    "tenant_groups": pa.schema(
        [
            ("broker", pa.string()),
            ("queue", pa.string()),
            ("tenant", pa.string()),
            ("tenant_group", pa.string()),
            ("declared", pa.bool_()),
        ]
    ),
    "rule_health": pa.schema(
        [
            ("rule_group", pa.string()),
            ("rule", pa.string()),
            ("ok", pa.bool_()),
            ("stale", pa.bool_()),
            ("error", pa.string()),
            ("failing_seconds", pa.float64()),
            ("alerts", pa.int64()),
        ]
    ),
    "notification_health": pa.schema(
        [
            ("receiver", pa.string()),
            ("ok", pa.bool_()),
            ("error", pa.string()),
            ("failing_seconds", pa.float64()),
            ("waiting", pa.int64()),
        ]
    ),
}


@lru_cache(maxsize=1024)
def checked(expr: str) -> frozenset[str]:
    """The views and tables that ``expr`` reads; UserError if it is not a usable expression.

    It is parsed, and run over empty views, so that an unknown column is found before the first alert is missed.
    """
    public = {name for name, view in VIEWS.items() if view.public}
    query = check(bound(expr, datetime.now(UTC), Definitions()), public | {*TABLES, *ENGINE_VIEWS})
    tables = frozenset(tables_of(query))
    names = [name.lower() for name in query.named_selects]
    if "*" not in names and VALUE not in names:
        raise UserError("the expression yields no column named value", "write SELECT …, <number> AS value FROM …")
    _try_out(expr, tables)
    return tables


def bound(expr: str, now: datetime, definitions: Definitions) -> str:
    """``expr`` with its parameters filled in."""
    values = {
        "evaluation_time": f"TIMESTAMP '{now.astimezone(UTC).isoformat(timespec='microseconds')}'",
        "target_seconds": f"CAST({definitions.target_seconds!r} AS DOUBLE)",
        "window_seconds": str(definitions.window_seconds),
    }
    return _PARAMETER.sub(lambda match: values[match[1]], expr)


def with_thresholds(expr: str, thresholds: Mapping[str, float]) -> str:
    """``expr`` with its own parameters filled in; UserError for a name that is taken, or that it does not use."""
    for name, value in thresholds.items():
        if name in PARAMETERS:
            raise UserError(
                f"a threshold cannot be called {name}", "that is a parameter of every expression: rename it"
            )
        number = str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
        number = f"CAST({number} AS DOUBLE)" if "e" in number else number
        expr, used = re.subn(_USED.format(name), number, expr)
        if not used:
            raise UserError(f"the expression does not use the threshold {name}", f"write :{name} where it belongs")
    return expr


def is_text(type_: pa.DataType) -> bool:
    """Whether a column of this type is a label."""
    return bool(
        types.is_string(type_)
        or types.is_large_string(type_)
        or types.is_string_view(type_)
        or types.is_dictionary(type_)
    )


def names_parameter(expr: str, name: str) -> bool:
    """Whether ``expr`` uses ``:name``."""
    return re.search(_USED.format(re.escape(name)), expr) is not None


def check_labels(expr: str, resolve: str) -> None:
    """UserError unless both, which were :func:`checked`, return the same labels: no alert could end otherwise."""
    mine, theirs = (_labels(one, checked(one)) for one in (expr, resolve))
    if mine is not None and theirs is not None and mine != theirs:
        told, wanted = (", ".join(sorted(one)) or "none" for one in (theirs, mine))
        raise UserError(
            f"it has the labels {told}, the expression {wanted}",
            "select the same text columns in both",
        )


@cache
def schema_of(name: str) -> pa.Schema:
    """The columns of a view, a table or an engine view."""
    if name in ENGINE_VIEWS:
        return ENGINE_VIEWS[name]
    if name in TABLES:
        return TABLES[name].schema
    return pa.schema([(column.name, arrow_type(column.type)) for column in VIEWS[name].columns])


def _labels(expr: str, tables: frozenset[str]) -> frozenset[str] | None:
    """The text columns of what ``expr`` returns, None where it cannot be tried out."""
    rows = _try_out(expr, tables)
    if rows is None:
        return None
    texts = (field.name.lower() for field in rows.schema if is_text(field.type))
    return frozenset(name for name in texts if name != VALUE)


def _try_out(expr: str, tables: frozenset[str]) -> pa.Table | None:
    """What ``expr`` returns over empty ``tables``; None where only the reader can tell."""
    memory = Memory()
    try:
        memory.put({name: schema_of(name).empty_table() for name in tables})
        return memory.query(bound(expr, datetime.now(UTC), Definitions()))
    except MemoryQueryError as error:
        text = str(error)
        if "Referenced column" in text or "does not have a column" in text:
            raise UserError(f"the expression does not fit its views: {text}", "correct the column's name") from error
        # Functions that DuckDB spells differently are the reader's to judge, when the rule first runs.
        return None
    finally:
        memory.close()


_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "array<struct<index: int, count: bigint>>": HISTOGRAM,
}


def arrow_type(spark_type: str) -> pa.DataType:
    """The Arrow type of a simple Spark type or a histogram; other nested ones, which no rule compares, are text."""
    return _TYPES.get(spark_type.strip().lower(), pa.string())
