"""Hostile plans of Spark Connect, by name: each makes a request that the gate has to refuse, as a client would send it.

The gate knows the tables :data:`tests.security.plan_parts.NAMES`. A plan that names a file names :data:`SECRET_FILE`,
one that writes writes :data:`MARKER`, which a test may look for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import zstandard
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2, commands_pb2

from tests.security.plan_parts import (
    SESSION,
    Expression,
    Relation,
    analysed,
    asked,
    called,
    sql,
    table,
    text,
    where,
    with_alias,
)

SECRET_FILE = "/etc/passwd"
MARKER = "/tmp/sojourn-never"
#: What would run a command, were it called.
EFFECT = f"reflect('java.nio.file.Files', 'createFile', '{MARKER}')"

Builder = Callable[[], Message]


def edited(make: Callable[[], Any], edit: Callable[[Any], Any]) -> Builder:
    """What ``make`` makes, after ``edit``."""

    def build() -> Message:
        made: Message = make()
        edit(made)
        return made

    return build


def _aliased(alias: str) -> Relation:
    """The alias elsewhere in the plan than beside the statement."""
    relation = Relation()
    relation.join.left.subquery_alias.alias = alias
    relation.join.left.subquery_alias.input.CopyFrom(table("partials"))
    relation.join.right.CopyFrom(table(alias))
    return relation


def _packed(message: Message, kind: int) -> base_pb2.ExecutePlanRequest:
    request = base_pb2.ExecutePlanRequest(session_id=SESSION)
    request.plan.compressed_operation.data = zstandard.compress(message.SerializeToString())
    request.plan.compressed_operation.op_type = kind  # type: ignore[assignment]
    return request


def _rows(schema: str) -> Relation:
    relation = Relation()
    relation.local_relation.schema = schema
    return relation


def _statement(**fields: Expression) -> Relation:
    relation = sql("SELECT * FROM partials WHERE queue = :a")
    for key, value in fields.items():
        relation.sql.named_arguments[key].CopyFrom(value)
    return relation


def _positional() -> Relation:
    relation = sql("SELECT * FROM partials WHERE queue = ?")
    relation.sql.pos_arguments.add().CopyFrom(called("reflect", text("java.lang.System"), text("exit")))
    return relation


def _config(edit: Callable[[Any], Any]) -> Builder:
    return edited(lambda: base_pb2.ConfigRequest(session_id=SESSION), lambda made: edit(made.operation))


def _set(key: str, value: str) -> Builder:
    return _config(lambda operation: operation.set.pairs.add(key=key, value=value))


def _artifact(name: str, data: bytes) -> Builder:
    def edit(request: Any) -> None:
        request.batch.artifacts.add(name=name).data.data = data

    return edited(lambda: base_pb2.AddArtifactsRequest(session_id=SESSION), edit)


def _catalog(call: str, **fields: str) -> Builder:
    def edit(request: Any) -> None:
        part = getattr(request.plan.root.catalog, call)
        part.SetInParent()
        for name, value in fields.items():
            setattr(part, name, value)

    return edited(lambda: base_pb2.ExecutePlanRequest(session_id=SESSION), edit)


def _deep(levels: int) -> Relation:
    relation = table("partials")
    for _ in range(levels):
        outer = Relation()
        outer.limit.limit = 1
        outer.limit.input.CopyFrom(relation)
        relation = outer
    return relation


_UDT = json.dumps({"type": "udt", "class": "java.util.Random", "pyClass": None, "sqlType": "string"})
_DEFAULT = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "a", "type": "string", "nullable": True, "metadata": {"EXISTS_DEFAULT": EFFECT}}],
    }
)
_FILES = (f"text.`{SECRET_FILE}`", f"`text`.`{SECRET_FILE}`", "delta.`/tmp`", "parquet.`/tmp`", "a.b", "`a`.`b`", "")
_ODD_NAMES = (
    "`partials",
    "partials`",
    "``partials``",
    "partials -- ",
    "partials/**/",
    "part\u0131als",
    "`text.x`",
    " ",
)

_SPELLINGS = (
    *("reflect", "REFLECT", "java_method", "try_reflect", "`reflect`", "system.builtin.reflect", "reflect/**/"),
    *("reflect -- x", "re\ufb02ect", "\u0131dentifier", "reflect\x00", " reflect", "builtin.`java_method`"),
)

_PLANS: list[tuple[str, Builder]] = [
    *((f"table {name!r}", lambda name=name: asked(table(name))) for name in (*_FILES, *_ODD_NAMES)),
    *((f"alias {name!r} elsewhere", lambda name=name: asked(_aliased(name))) for name in _FILES if name),
    *((f"alias {name!r} in a schema", lambda name=name: analysed(_aliased(name))) for name in _FILES if name),
    *((f"alias {name!r} beside", lambda name=name: asked(with_alias(name, table(name)))) for name in _FILES if name),
    *(
        (f"alias {name!r} beside SQL", lambda name=name: asked(with_alias(name, sql(f"SELECT * FROM {name}"))))
        for name in _FILES
        if name
    ),
    (
        "an alias of SQL elsewhere",
        lambda: asked(where(called("isnull"), with_alias("x", where(called("isnull"), sql("SELECT * FROM x"))))),
    ),
    *((f"function {name!r}", lambda name=name: asked(where(called(name, text("a"))))) for name in _SPELLINGS),
    *(
        (f"function {name!r} in text", lambda name=name: asked(where(_text(f"{name}('a', 'b')"))))
        for name in _SPELLINGS
        if "--" not in name  # which makes a column of it
    ),
    *((f"function {name!r} by call_function", lambda name=name: asked(where(_call(name)))) for name in _SPELLINGS),
    (
        "a function as a user's own",
        edited(
            lambda: asked(where(called("isnull"))),
            lambda r: setattr(r.plan.root.filter.condition.unresolved_function, "is_user_defined_function", True),
        ),
    ),
    (
        "a function of Spark's inside",
        edited(
            lambda: asked(where(called("isnull"))),
            lambda r: setattr(r.plan.root.filter.condition.unresolved_function, "is_internal", True),
        ),
    ),
    ("a named argument", lambda: asked(_statement(a=called("reflect", text("java.lang.System"), text("exit"))))),
    ("a positional argument", lambda: asked(_positional())),
    ("a query in text", lambda: asked(where(_text(f"queue IN (SELECT value FROM text.`{SECRET_FILE}`)")))),
    (
        "options of a table",
        edited(
            lambda: asked(table("partials")),
            lambda r: r.plan.root.read.named_table.options.update({"path": SECRET_FILE}),
        ),
    ),
    (
        "a streaming table",
        edited(lambda: asked(table("partials")), lambda r: setattr(r.plan.root.read, "is_streaming", True)),
    ),
    (
        "a data source",
        edited(
            lambda: asked(Relation()),
            lambda r: (
                setattr(r.plan.root.read.data_source, "format", "text"),
                r.plan.root.read.data_source.paths.append(SECRET_FILE),
            ),
        ),
    ),
    ("a plan of no kind", lambda: asked(Relation())),
    ("no plan", lambda: base_pb2.ExecutePlanRequest(session_id=SESSION)),
    ("a plan compressed as what it is not", lambda: _packed(commands_pb2.Command(), 0)),
    ("a compressed command", lambda: _packed(_drop(), 2)),
    ("a compressed table", lambda: _packed(table(f"text.`{SECRET_FILE}`"), 1)),
    (
        "an unknown codec's bytes",
        edited(
            lambda: base_pb2.ExecutePlanRequest(session_id=SESSION),
            lambda r: r.plan.compressed_operation.MergeFromString(b"\x0a\x03abc\x10\x01"),
        ),
    ),
    (
        "unknown fields",
        edited(lambda: asked(table("partials")), lambda r: r.plan.root.read.MergeFromString(b"\xf2\x7e\x03abc")),
    ),
    ("an unknown enumeration", edited(lambda: asked(_join()), lambda r: setattr(r.plan.root.join, "join_type", 99))),
    ("an extension", edited(lambda: asked(Relation()), lambda r: r.plan.root.extension.SetInParent())),
    (
        "an extension of the user",
        edited(lambda: asked(table("partials")), lambda r: r.user_context.extensions.add(type_url="x")),
    ),
    (
        "an extension of the request",
        edited(lambda: asked(table("partials")), lambda r: r.request_options.add().extension.SetInParent()),
    ),
    ("no session", edited(lambda: asked(table("partials")), lambda r: r.ClearField("session_id"))),
    (
        "a session that is no UUID",
        edited(lambda: asked(table("partials")), lambda r: setattr(r, "session_id", "../../x")),
    ),
    (
        "an operation that is no UUID",
        edited(lambda: asked(table("partials")), lambda r: setattr(r, "operation_id", "x")),
    ),
    ("a long tag", edited(lambda: asked(table("partials")), lambda r: r.tags.append("x" * 5000))),
    ("many tags", edited(lambda: asked(table("partials")), lambda r: r.tags.extend(map(str, range(1000))))),
    ("a long client", edited(lambda: asked(table("partials")), lambda r: setattr(r, "client_type", "x" * 100_000))),
    ("a deep plan", lambda: asked(_deep(80))),
    ("a deep expression", lambda: asked(where(_text("(" * 3000 + "1" + ")" * 3000)))),
    ("a class in a schema", lambda: asked(_rows(_UDT))),
    ("a default in a schema", lambda: asked(_rows(_DEFAULT))),
    ("a default in DDL", lambda: asked(_rows(f"a STRING DEFAULT {EFFECT}"))),
    ("a deep schema", lambda: asked(_rows("ARRAY<" * 3000 + "INT" + ">" * 3000))),
    (
        "two types in a schema",
        lambda: asked(_rows('{"type":"udt","class":"java.util.Random","type":"struct","fields":[]}')),
    ),
    (
        "metadata of a column",
        edited(
            lambda: asked(_project()),
            lambda r: setattr(r.plan.root.project.expressions[0].alias, "metadata", '{"EXISTS_DEFAULT": "1"}'),
        ),
    ),
    (
        "a class as a type",
        edited(
            lambda: asked(_project()),
            lambda r: setattr(
                r.plan.root.project.expressions[0].alias.expr.cast.type.udt, "jvm_class", "java.util.Random"
            ),
        ),
    ),
    (
        "a class as a type in text",
        edited(
            lambda: asked(_project()),
            lambda r: setattr(r.plan.root.project.expressions[0].alias.expr.cast, "type_str", _UDT),
        ),
    ),
    (
        "many partitions",
        edited(
            lambda: asked(Relation()),
            lambda r: (setattr(r.plan.root.range, "end", 10), setattr(r.plan.root.range, "num_partitions", 10**9)),
        ),
    ),
    ("a hint that is none", edited(lambda: asked(_hint("reflect")), lambda r: None)),
    (
        "a hint of many partitions",
        edited(
            lambda: asked(_hint("repartition")),
            lambda r: setattr(r.plan.root.hint.parameters.add().literal, "integer", 10**9),
        ),
    ),
    *(
        (f"SQL {query!r}", lambda query=query: asked(sql(query)))
        for query in (
            f"SELECT * FROM text.`{SECRET_FILE}`",
            "INSERT INTO partials SELECT * FROM partials",
            f"INSERT OVERWRITE DIRECTORY '{MARKER}' USING parquet SELECT 1",
            "CREATE TEMPORARY FUNCTION f AS 'x.Y'",
            "SET spark.sql.variable.substitute=true",
            "SHOW TABLES; DROP VIEW partials",
            "SHOW CREATE TABLE partials",
            "DESCRIBE EXTENDED partials",
            f"DESCRIBE text.`{SECRET_FILE}`",
            "DESCRIBE secrets",
            "ADD JAR '/tmp/x.jar'",
            f"SELECT {EFFECT}",
            "SELECT TRANSFORM(queue) USING 'cat' AS (line) FROM partials",
        )
    ),
    *(
        (f"catalogue {call} {fields}", _catalog(call, **fields))
        for call, fields in (
            ("table_exists", {"table_name": f"text.`{SECRET_FILE}`"}),
            ("get_table", {"table_name": "delta.`/tmp`"}),
            ("list_columns", {"table_name": "parquet.`/tmp`"}),
            ("list_columns", {"table_name": "`/tmp`"}),
            ("create_external_table", {"table_name": "x", "path": "/tmp"}),
            ("create_table", {"table_name": "x", "path": "/tmp"}),
            ("drop_temp_view", {"view_name": "limits"}),
            ("cache_table", {"table_name": "limits"}),
            ("refresh_by_path", {"path": "/tmp"}),
            ("get_create_table_string", {"table_name": "limits"}),
        )
    ),
    *(
        (f"reads setting {key}", _config(lambda operation, key=key: operation.get.keys.append(key)))
        for key in (
            "spark.connect.authenticate.token",
            "spark.driver.extraClassPath",
            "spark.master",
            "SPARK.SQL.ANSI.ENABLED",
        )
    ),
    (
        "reads a setting with a default",
        _config(lambda o: o.get_with_default.pairs.add(key="spark.connect.authenticate.token", value="x")),
    ),
    ("reads a setting if it is there", _config(lambda o: o.get_option.keys.append("spark.connect.authenticate.token"))),
    ("asks for no setting", _config(lambda o: o.SetInParent())),
    *(
        (f"sets {key}={value}", _set(key, value))
        for key, value in (
            ("spark.sql.catalog.mine", "org.example.Catalog"),
            ("spark.sql.execution.arrow.zz", "TRANSFORM"),
            ("spark.sql.variable.substitute", "true"),
            ("spark.sql.session.timeZone", "${env:PATH}"),
            ("spark.sql.shuffle.partitions", "1000000000"),
            ("spark.sql.shuffle.partitions", "\u0663"),
            ("spark.sql.ansi.enabled", "${spark.connect.authenticate.token}"),
            ("spark.sql.ansi.enabled ", "true"),
        )
    ),
    ("unsets what it may not", _config(lambda o: o.unset.keys.append("spark.sql.variable.substitute"))),
    *(
        (f"brings {name}", _artifact(name, b"\xff\xff\xff\xff"))
        for name in (
            "jars/x.jar",
            "pyfiles/x.py",
            "files/x",
            "cache/../jars/x.jar",
            f"cache/{'a' * 64}/x",
            f"cache/{'a' * 64}\n",
        )
    ),
]


def _text(expression: str) -> Expression:
    return Expression(expression_string=Expression.ExpressionString(expression=expression))


def _call(name: str) -> Expression:
    expression = Expression()
    expression.call_function.function_name = name
    return expression


def _drop() -> commands_pb2.Command:
    command = commands_pb2.Command()
    command.sql_command.input.CopyFrom(sql("DROP VIEW partials"))
    return command


def _join() -> Relation:
    relation = Relation()
    relation.join.left.CopyFrom(table("partials"))
    relation.join.right.CopyFrom(table("limits"))
    return relation


def _project() -> Relation:
    relation = Relation()
    relation.project.input.CopyFrom(table("partials"))
    relation.project.expressions.add().alias.name.append("x")
    relation.project.expressions[0].alias.expr.cast.expr.CopyFrom(text("1"))
    return relation


def _hint(name: str) -> Relation:
    relation = Relation()
    relation.hint.input.CopyFrom(table("partials"))
    relation.hint.name = name
    return relation


#: Name → what makes the request.
HOSTILE_PLANS: dict[str, Builder] = dict(_PLANS)
