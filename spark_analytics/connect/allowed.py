"""What a client of Spark Connect may ask: plans that only read, over the lake's tables and views by their names.

Whatever is not known to be harmless is refused: each field of each message (:mod:`spark_analytics.connect.fields`),
each function, each name. What was understood stands in the place of what was sent: tables by their canonical names, SQL
as it was parsed, messages as they were read. So what was checked is what runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar, cast

import zstandard
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from pyspark.sql.connect.proto import base_pb2, commands_pb2, relations_pb2

from lake.errors import UserError, first_line
from lake.select import canonical, check_expression
from lake.sql.functions import judgement
from lake.sql.parameters import Value, with_values
from spark_analytics.connect.fields import ALLOWED_FIELDS
from spark_analytics.connect.schemas import check_metadata, checked_schema
from spark_analytics.connect.settings import check_settings

#: A larger request, of which most would be data of the client's own, is refused.
MOST_BYTES = 64 * 1024 * 1024
#: Messages inside one another. Python's protobuf itself reads a hundred.
_MOST_NESTED = 120
_MOST_PARTITIONS = 1000

#: Texts are bounded by this many characters, but for those below; 0 for no bound but the request's.
_MOST_CHARACTERS = 4096
_LONGER = {
    "spark.connect.SQL.query": 64 * 1024,
    "spark.connect.SqlCommand.sql": 64 * 1024,
    "spark.connect.Expression.ExpressionString.expression": 64 * 1024,
    "spark.connect.LocalRelation.schema": 64 * 1024,
    "spark.connect.AnalyzePlanRequest.DDLParse.ddl_string": 64 * 1024,
    "spark.connect.AnalyzePlanRequest.JsonToDDL.json_string": 64 * 1024,
    "spark.connect.DataType.Unparsed.data_type_string": 64 * 1024,
    "spark.connect.Expression.Literal.string": 0,
    "spark.connect.Strings.values": 0,
}
#: What an argument of a statement may be.
_PLAIN = frozenset(
    ("null", "boolean", "byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp")
)
_MOST_TAGS = 64
_MOST_TAG_CHARACTERS = 256

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_IDS = {
    *("session_id", "new_session_id", "client_observed_server_side_session_id"),
    *("operation_id", "operation_ids", "last_response_id", "response_id"),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_PATTERN = re.compile(r"[\w*|. -]{0,128}", re.ASCII)
_HINTS = {
    *("broadcast", "broadcastjoin", "mapjoin", "merge", "mergejoin", "shuffle_merge", "shuffle_hash"),
    *("shuffle_replicate_nl", "coalesce", "repartition", "repartition_by_range", "rebalance"),
}
#: Statements that say what there is: what they are called, and the name that they ask for.
_LISTING = re.compile(
    r"\s*(?:(?P<all>SHOW\s+(?:TABLES|VIEWS))|(?P<one>DESC(?:RIBE)?(?:\s+TABLE)?|SHOW\s+COLUMNS\s+(?:IN|FROM))"
    r"\s+(?P<name>[A-Za-z_]\w*))\s*;?\s*",
    re.IGNORECASE | re.ASCII,
)
#: Rows of a client's own that are too many for a plan come ahead of it, under the hash of what they are.
OWN_ROWS = re.compile(r"cache/([0-9a-f]{64})", re.ASCII)
#: How Arrow's streams begin.
ARROW = b"\xff\xff\xff\xff"

_Request = TypeVar("_Request", bound=Message)


class Refused(UserError):
    """A request that does more than ask."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not allowed here", "the lake is read-only: ask by SELECT, or by DataFrames over its views"
        )


def read_request(kind: type[_Request], data: bytes) -> _Request:
    """The request that ``data`` holds. Raises UserError where it is too large, nested too deeply, or damaged."""
    if len(data) > MOST_BYTES:
        raise Refused(f"a request of more than {MOST_BYTES >> 20} MiB")
    try:
        request: _Request = kind.FromString(data)
    except DecodeError as error:
        raise Refused("a request that is damaged, or nested more than a hundred levels deep,") from error
    return request


#: Looks at a statement, as it will run, and the names that it may use; raises UserError.
Look = Callable[[str, Collection[str]], None]


def no_look(statement: str, names: Collection[str]) -> None:
    """Sees nothing wrong."""


@dataclass(frozen=True, slots=True)
class Known:
    """The names that may be asked about, and a second look at the statements over them."""

    names: frozenset[str]
    look: Look = no_look

    def __contains__(self, name: str) -> bool:
        return name in self.names


def checked(request: _Request, known: Known) -> _Request:
    """``request``, if it only asks about ``known`` names, with all of it as it was understood. Raises UserError."""
    if not getattr(request, "session_id", "-"):
        raise Refused("a request outside of a session")
    try:
        _unpack(request)
        _visit(request, known, 0)
    except RecursionError:
        raise Refused("so deeply nested a request") from None
    return request


def _visit(message: Message, known: Known, depth: int) -> None:
    name = message.DESCRIPTOR.full_name
    allowed = ALLOWED_FIELDS.get(name)
    if depth > _MOST_NESTED:
        raise Refused("so deeply nested a request")
    if allowed is None or len(UnknownFieldSet(message)):
        raise Refused(f"{_words(name)} with what this version does not know")
    fields = message.ListFields()
    for field, value in fields:
        if field.name not in allowed:
            raise Refused(_words(field.name))
        if field.type == FieldDescriptor.TYPE_STRING:
            _check_texts(field, [value] if isinstance(value, str) else value)
        elif field.type == FieldDescriptor.TYPE_ENUM:
            _check_enum(field, [value] if isinstance(value, int) else value)
    if rule := _RULES.get(name):
        rule(message, known)
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            scope = known
            if name == "spark.connect.WithRelations" and field.name == "root" and value.HasField("sql"):
                scope = Known(known.names | _references(message), known.look)
            for held in _held(field, value):
                _visit(held, scope, depth + 1)


def _held(field: FieldDescriptor, value: Any) -> Iterator[Message]:
    if field.message_type.GetOptions().map_entry:
        for key, entry in value.items():
            _check_texts(field, [key] if isinstance(key, str) else [])
            if isinstance(entry, Message):
                yield entry
            else:
                _check_texts(field, [entry] if isinstance(entry, str) else [])
    elif field.is_repeated:
        yield from value
    else:
        yield value


def _references(message: Any) -> set[str]:
    """The names under which a statement may speak of the DataFrames that come with it."""
    return {
        reference.subquery_alias.alias.lower()
        for reference in message.references
        if _NAME.fullmatch(reference.subquery_alias.alias)
    }


def _check_texts(field: FieldDescriptor, texts: Collection[str]) -> None:
    most = _LONGER.get(field.full_name, _MOST_CHARACTERS)
    for text in texts:
        if most and len(text) > most:
            raise Refused(f"{_words(field.name)} of more than {most} characters")
        if field.name in _IDS and text and not _UUID.fullmatch(text):
            raise Refused(f"{_words(field.name)} that is no UUID")


def _check_enum(field: FieldDescriptor, values: Collection[int]) -> None:
    for value in values:
        if value not in field.enum_type.values_by_number:
            raise Refused(f"{_words(field.name)} that this version does not know")


def _words(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")


def _rule_execute(request: Any, known: Known) -> None:
    if not request.HasField("plan"):
        raise Refused("no plan")
    for tag in request.tags:
        if len(tag) > _MOST_TAG_CHARACTERS:
            raise Refused("so long a tag")
    if len(request.tags) > _MOST_TAGS:
        raise Refused("so many tags")


def _rule_settings(operation: Any, known: Known) -> None:
    check_settings(operation)


def _rule_table(table: Any, known: Known) -> None:
    sent = table.unparsed_identifier
    bare = sent[1:-1] if sent[:1] == sent[-1:] == "`" else sent
    if not _NAME.fullmatch(bare) or bare.lower() not in known:
        raise Refused(f"reading {sent[:200] or 'files'}")
    table.unparsed_identifier = bare.lower()


def _rule_sql(statement: Any, known: Known) -> None:
    values = {name: _argument(expression) for name, expression in statement.named_arguments.items()}
    statement.ClearField("named_arguments")  # Spark sees their literals
    statement.query = _sql(with_values(statement.query, values) if values else statement.query, known)


def _argument(expression: Any) -> Value:
    """The value of an argument: one literal of a plain type."""
    if expression.WhichOneof("expr_type") != "literal":
        raise Refused("an argument that is no plain value")
    kind = expression.literal.WhichOneof("literal_type")
    if kind not in _PLAIN:
        raise Refused("an argument that is no plain value")
    value = getattr(expression.literal, kind)
    if kind == "null":
        return None
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=_bounded(value, 2_900_000))
    if kind == "timestamp":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=_bounded(value, 250_000_000_000_000_000))
    return cast(Value, value)


def _bounded(value: int, most: int) -> int:
    """``value``, if it is of an instant after 1970 that calendars have."""
    if not 0 <= value <= most:
        raise Refused("an instant that no calendar has")
    return value


def _rule_command(command: Any, known: Known) -> None:
    if command.sql:  # as clients before Spark 4 sent it
        command.sql = _sql(command.sql, known)


def _sql(text: str, known: Known) -> str:
    listing = _LISTING.fullmatch(text)
    if listing is None:
        statement = canonical(text, known.names)
        known.look(statement, known.names)
        return statement
    if listing["all"]:
        return " ".join(listing["all"].upper().split())
    if (name := listing["name"].lower()) not in known:
        raise Refused(f"reading {name}")
    return f"{' '.join(listing['one'].upper().split())} {name}"


def _rule_one_of(oneof: str) -> Callable[[Any, Known], None]:
    def rule(message: Any, known: Known) -> None:
        if message.WhichOneof(oneof) is None:
            raise Refused("what this version does not know")

    return rule


def _rule_alias(alias: Any, known: Known) -> None:
    check_metadata(alias.metadata)


def _rule_field(field: Any, known: Known) -> None:
    check_metadata(field.metadata)


def _rule_function(call: Any, known: Known) -> None:
    functions = judgement("spark")
    if call.function_name not in functions.operators:
        functions.require(call.function_name, len(call.arguments))


def _rule_text(expression: Any, known: Known) -> None:
    expression.expression = check_expression(expression.expression)
    known.look(f"SELECT {expression.expression}", known.names)


def _rule_cast(cast: Any, known: Known) -> None:
    if cast.type_str:
        cast.type_str = checked_schema(cast.type_str)


def _rule_unparsed(kind: Any, known: Known) -> None:
    kind.data_type_string = checked_schema(kind.data_type_string)


def _rule_ddl(request: Any, known: Known) -> None:
    request.ddl_string = checked_schema(request.ddl_string)


def _rule_json(request: Any, known: Known) -> None:
    request.json_string = checked_schema(request.json_string)


def _rule_rows(rows: Any, known: Known) -> None:
    if rows.schema:
        rows.schema = checked_schema(rows.schema)
    if rows.data and not rows.data.startswith(ARROW):
        raise Refused("data that is not Arrow's")


def _rule_hashes(rows: Any, known: Known) -> None:
    for hashed in [*rows.dataHashes, *([rows.schemaHash] if rows.schemaHash else [])]:
        if not OWN_ROWS.fullmatch(f"cache/{hashed}"):
            raise Refused(f"reading {hashed[:80]}")


def _rule_artifacts(request: Any, known: Known) -> None:
    for name in request.names:
        if not OWN_ROWS.fullmatch(name):
            raise Refused(f"asking for {name[:200]}")


def _rule_hint(hint: Any, known: Known) -> None:
    if hint.name.lower() not in _HINTS:
        raise Refused(f"the hint {hint.name[:80]}")
    for parameter in hint.parameters:
        literal = parameter.literal
        if max(literal.integer, literal.long, literal.short, literal.byte) > _MOST_PARTITIONS:
            raise Refused(f"more than {_MOST_PARTITIONS} partitions")


def _rule_partitions(relation: Any, known: Known) -> None:
    if relation.num_partitions > _MOST_PARTITIONS:
        raise Refused(f"more than {_MOST_PARTITIONS} partitions")


def _rule_catalog(asked: Any, known: Known) -> None:
    for field, value in asked.ListFields():
        pattern = _PATTERN if field.name == "pattern" else _NAME
        if not pattern.fullmatch(value):
            raise Refused(f"asking for {value[:200]}")


_RULES: dict[str, Callable[[Any, Known], None]] = {
    f"spark.connect.{name}": rule
    for name, rule in {
        "ExecutePlanRequest": _rule_execute,
        "AnalyzePlanRequest": _rule_one_of("analyze"),
        "ConfigRequest.Operation": _rule_settings,
        "Plan": _rule_one_of("op_type"),
        "Command": _rule_one_of("command_type"),
        "Relation": _rule_one_of("rel_type"),
        "Catalog": _rule_one_of("cat_type"),
        "Read": _rule_one_of("read_type"),
        "Read.NamedTable": _rule_table,
        "SQL": _rule_sql,
        "SqlCommand": _rule_command,
        "Expression.Alias": _rule_alias,
        "Expression.UnresolvedFunction": _rule_function,
        "CallFunction": _rule_function,
        "Expression.ExpressionString": _rule_text,
        "Expression.Cast": _rule_cast,
        "DataType.Unparsed": _rule_unparsed,
        "DataType.StructField": _rule_field,
        "AnalyzePlanRequest.DDLParse": _rule_ddl,
        "AnalyzePlanRequest.JsonToDDL": _rule_json,
        "LocalRelation": _rule_rows,
        "ChunkedCachedLocalRelation": _rule_hashes,
        "ArtifactStatusesRequest": _rule_artifacts,
        "Hint": _rule_hint,
        "Range": _rule_partitions,
        "Repartition": _rule_partitions,
        "RepartitionByExpression": _rule_partitions,
        **dict.fromkeys(
            (
                *("ListDatabases", "ListCatalogs", "ListTables", "ListViews", "ListFunctions", "ListColumns"),
                *("GetDatabase", "GetTable", "GetFunction", "DatabaseExists", "TableExists", "FunctionExists"),
                "IsCached",
            ),
            _rule_catalog,
        ),
    }.items()
}


def _unpack(request: Message) -> None:
    """Let ``request`` hold large plans, which clients compress, as they are; what stays packed is refused later."""
    for plan in _plans(request):
        if plan.HasField("compressed_operation"):
            packed = plan.compressed_operation
            try:
                with zstandard.ZstdDecompressor(max_window_size=MOST_BYTES).stream_reader(packed.data) as reader:
                    data = reader.read(MOST_BYTES + 1)
            except zstandard.ZstdError as error:
                raise Refused(f"a plan that cannot be unpacked ({first_line(error)})") from error
            if packed.op_type == base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION:
                plan.root.CopyFrom(read_request(relations_pb2.Relation, data))
            elif packed.op_type == base_pb2.Plan.CompressedOperation.OP_TYPE_COMMAND:
                plan.command.CopyFrom(read_request(commands_pb2.Command, data))


def _plans(request: Message) -> Iterator[base_pb2.Plan]:
    """The plans of ``request``, which stand at most two levels deep."""
    for field, value in request.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated:
            if isinstance(value, base_pb2.Plan):
                yield value
            elif isinstance(request, base_pb2.AnalyzePlanRequest):
                yield from (part for _, part in value.ListFields() if isinstance(part, base_pb2.Plan))
