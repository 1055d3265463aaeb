"""What a client of Spark Connect may ask: plans that only read, over the lake's tables and views by their names.

Whatever is not known to be harmless is refused: so is a kind of plan that a later Spark adds, until it is named here.
SQL inside a plan is parsed, and what was parsed stands in its place: what was checked is what runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TypeVar

import zstandard
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql.connect.proto import base_pb2, catalog_pb2, commands_pb2, expressions_pb2, relations_pb2

from lake.errors import UserError, first_line
from lake.select import canonical, check_expression, is_allowed_function

#: A larger plan, of which most would be data of the client's own, is refused.
MOST_BYTES = 64 * 1024 * 1024

_READS = {
    *("read", "project", "filter", "join", "set_op", "sort", "limit", "aggregate", "sql", "local_relation", "sample"),
    *("offset", "deduplicate", "range", "subquery_alias", "repartition", "to_df", "with_columns_renamed"),
    *("show_string", "drop", "tail", "with_columns", "hint", "unpivot", "to_schema", "repartition_by_expression"),
    *("collect_metrics", "html_string", "as_of_join", "with_relations", "transpose", "lateral_join", "fill_na"),
    *("drop_na", "replace", "summary", "crosstab", "describe", "cov", "corr", "approx_quantile", "freq_items"),
    *("sample_by", "catalog", "cached_local_relation", "chunked_cached_local_relation"),
}
_EXPRESSIONS = {
    *("literal", "unresolved_attribute", "unresolved_function", "expression_string", "unresolved_star", "alias"),
    *("cast", "unresolved_regex", "sort_order", "lambda_function", "window", "unresolved_extract_value"),
    *("update_fields", "unresolved_named_lambda_variable", "call_function", "named_argument_expression"),
    "subquery_expression",
}
_CATALOG = {
    *("current_database", "list_databases", "list_tables", "list_functions", "list_columns", "get_database"),
    *("get_table", "get_function", "database_exists", "table_exists", "function_exists", "current_catalog"),
    *("list_catalogs", "list_views", "is_cached"),
}
_ANALYSES = {
    *("schema", "explain", "tree_string", "is_local", "is_streaming", "spark_version", "ddl_parse", "json_to_ddl"),
    *("same_semantics", "semantic_hash", "get_storage_level"),
}
_CONFIG_READS = {"get", "get_with_default", "get_option", "get_all", "is_modifiable"}
#: Settings that a client may change for itself.
_SETTINGS = re.compile(r"spark\.sql\.(session\.timeZone|shuffle\.partitions|ansi\.enabled|execution\.arrow\..*)$")
#: Statements that say what there is.
_LISTINGS = re.compile(
    r"\s*(SHOW\s+(TABLES|VIEWS)|(DESC|DESCRIBE)\s+(TABLE\s+)?\w+|SHOW\s+COLUMNS\s+(IN|FROM)\s+\w+)\s*;?\s*", re.I
)

#: Rows of a client's own that are too many for a plan come ahead of it, under the hash of what they are.
_OWN_ROWS = re.compile(r"cache/[0-9a-f]{64}")

_Message = TypeVar("_Message", bound=Message)


class Refused(UserError):
    """A plan that does more than ask."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not allowed here", "the lake is read-only: ask by SELECT, or by DataFrames over its views"
        )


def checked_plan(request: base_pb2.ExecutePlanRequest, names: Collection[str]) -> base_pb2.ExecutePlanRequest:
    """``request``, if it only asks about ``names``, with its SQL as it was understood. Raises UserError otherwise."""
    return _checked(request, names)


def checked_analysis(request: base_pb2.AnalyzePlanRequest, names: Collection[str]) -> base_pb2.AnalyzePlanRequest:
    """``request``, if it only asks about plans that :func:`checked_plan` lets pass. Raises UserError otherwise."""
    _require(request.WhichOneof("analyze"), _ANALYSES)
    return _checked(request, names)


def check_config(request: base_pb2.ConfigRequest) -> None:
    """Raises UserError unless ``request`` reads settings, or changes those that are a client's own affair."""
    operation = request.operation
    kind = operation.WhichOneof("op_type")
    if kind in _CONFIG_READS:
        return
    _require(kind, {"set", "unset"})
    keys = [pair.key for pair in operation.set.pairs] if kind == "set" else list(operation.unset.keys)
    for key in keys:
        if not _SETTINGS.match(key):
            raise Refused(f"changing {key}")


def check_artifacts(request: base_pb2.AddArtifactsRequest) -> None:
    """Raises UserError unless ``request``, one of a stream, brings rows: files, jars and code are not taken."""
    brought = [artifact.name for artifact in request.batch.artifacts]
    if request.HasField("begin_chunk"):
        brought.append(request.begin_chunk.name)
    for name in brought:
        if not _OWN_ROWS.fullmatch(name):
            raise Refused(f"bringing {name}")


def _checked(request: _Message, names: Collection[str]) -> _Message:
    _unpack(request)
    parts = list(_messages(request))
    aliases = {part.subquery_alias.alias.lower() for part in parts if isinstance(part, relations_pb2.Relation)}
    known = {*names, *aliases} - {""}
    for part in parts:
        if isinstance(part, base_pb2.Plan):
            _require(part.WhichOneof("op_type"), {"root", "command"})
        elif isinstance(part, commands_pb2.Command):
            _require(part.WhichOneof("command_type"), {"sql_command"})
            if part.sql_command.sql:  # as clients before Spark 4 sent it
                part.sql_command.sql = _sql(part.sql_command.sql, known)
        elif isinstance(part, relations_pb2.Relation):
            _check_relation(part, known)
        elif isinstance(part, catalog_pb2.Catalog):
            _require(part.WhichOneof("cat_type"), _CATALOG)
        elif isinstance(part, expressions_pb2.Expression):
            _check_expression(part)
    return request


def _check_relation(relation: relations_pb2.Relation, known: Collection[str]) -> None:
    _require(relation.WhichOneof("rel_type"), _READS)
    if relation.HasField("sql"):
        relation.sql.query = _sql(relation.sql.query, known)
    elif relation.HasField("read"):
        name = relation.read.named_table.unparsed_identifier
        if relation.read.is_streaming or name.strip("`").lower() not in known:
            raise Refused(f"reading {name or 'files'}")


def _check_expression(expression: expressions_pb2.Expression) -> None:
    kind = expression.WhichOneof("expr_type")
    if kind is None:
        return  # an optional part that is not there
    _require(kind, _EXPRESSIONS)
    called = expression.unresolved_function.function_name or expression.call_function.function_name
    if called and not is_allowed_function(called):
        raise Refused(f"the function {called}")
    if kind == "expression_string":
        expression.expression_string.expression = check_expression(expression.expression_string.expression)


def _sql(text: str, known: Collection[str]) -> str:
    return text if _LISTINGS.fullmatch(text) else canonical(text, known)


def _require(kind: str | None, allowed: Collection[str]) -> None:
    if kind not in allowed:
        raise Refused((kind or "what this version does not know").replace("_", " "))


def _unpack(request: Message) -> None:
    """Let ``request`` hold large plans, which clients compress, as they are."""
    for part in list(_messages(request)):
        if isinstance(part, base_pb2.Plan) and part.HasField("compressed_operation"):
            packed = part.compressed_operation
            try:
                with zstandard.ZstdDecompressor().stream_reader(packed.data) as reader:
                    data = reader.read(MOST_BYTES + 1)
                if len(data) > MOST_BYTES:
                    raise Refused("so large a plan")
                if packed.op_type == base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION:
                    part.root.CopyFrom(relations_pb2.Relation.FromString(data))
                else:
                    part.command.CopyFrom(commands_pb2.Command.FromString(data))
            except (zstandard.ZstdError, DecodeError) as error:
                raise Refused(f"a plan that cannot be unpacked ({first_line(error)})") from error


def _messages(message: Message) -> Iterator[Message]:
    """``message`` and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        if field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            held = value.values() if of.type == FieldDescriptor.TYPE_MESSAGE else ()
        else:
            held = value if field.is_repeated else (value,)
        for one in held:
            yield from _messages(one)
