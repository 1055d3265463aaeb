"""What passes the gate of Spark Connect: questions over the lake's names. No code runs, no file is read or written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2, catalog_pb2, commands_pb2, expressions_pb2, relations_pb2

from lake.errors import UserError
from spark_analytics.connect.allowed import MOST_BYTES, Known, checked, read_request
from spark_analytics.connect.fields import ALLOWED_FIELDS
from spark_analytics.connect.own_rows import OwnRows
from spark_analytics.connect.settings import readable_answer
from tests.security.plan_parts import NAMES, SESSION, analysed, asked, called, sql, table, text, where, with_alias
from tests.security.plans import HOSTILE_PLANS

Relation, Expression = relations_pb2.Relation, expressions_pb2.Expression
ARROW = b"\xff\xff\xff\xff and rows"


def passed(request: Any) -> Any:
    """``request`` after the gate, as it came over the wire."""
    read = checked(read_request(type(request), request.SerializeToString()), Known(frozenset(NAMES)))
    if isinstance(read, base_pb2.AddArtifactsRequest):
        OwnRows().check(read)
    return read


def in_text(expression: str) -> Expression:
    return Expression(expression_string=Expression.ExpressionString(expression=expression))


def bare(make: Callable[[], Any], kind: str) -> Any:
    message = make()
    getattr(message, kind).SetInParent()
    return message


def refused_kinds(message: type[Message], oneof: str) -> list[str]:
    descriptor: Any = message.DESCRIPTOR
    kinds = {field.name for field in descriptor.oneofs_by_name[oneof].fields}
    return sorted(kinds - ALLOWED_FIELDS[descriptor.full_name])


@pytest.mark.parametrize(
    "relation",
    [
        table("partials"),
        table("`Queue_Health_Now`"),
        sql("SELECT queue, count(*) FROM partials GROUP BY queue"),
        sql("SHOW TABLES"),
        sql("describe table queue_health_now"),
        where(in_text("enqueued > 3")),
        where(called("isnotnull", text("a"))),
        where(called("==", text("a"), text("b"))),
        where(called("startsWith", text("a"), text("b"))),
    ],
    ids=str,
)
def test_questions_pass(relation: Relation) -> None:
    passed(asked(relation))
    passed(analysed(relation))


@pytest.mark.parametrize("build", HOSTILE_PLANS.values(), ids=HOSTILE_PLANS)
def test_whatever_reaches_beyond_the_lake_is_refused(build: Callable[[], Message]) -> None:
    with pytest.raises(UserError):
        passed(build())


def test_what_was_checked_is_what_runs() -> None:
    query = passed(asked(sql("select queue from partials -- ; DROP VIEW partials"))).plan.root.sql.query
    assert query == "SELECT `queue` FROM `partials`"
    assert passed(asked(where(in_text("a >  1")))).plan.root.filter.condition.expression_string.expression == "`a` > 1"
    name = passed(asked(table("`Queue_Health_Now`"))).plan.root.read.named_table.unparsed_identifier
    assert name == "queue_health_now"
    assert passed(asked(sql(" show\n columns FROM Limits ; "))).plan.root.sql.query == "SHOW COLUMNS FROM limits"


def test_sql_may_name_the_data_frames_that_come_with_it_and_nothing_else_may() -> None:
    once = passed(asked(with_alias("Mine", sql("SELECT * FROM mine"))))
    assert passed(once) == once  # as it comes back from the server with a DataFrame, and is sent again
    for root in (table("mine"), where(called("isnull"), sql("SELECT * FROM mine")), sql("SELECT * FROM others")):
        with pytest.raises(UserError):
            passed(asked(with_alias("mine", root)))
    named = table("partials")
    for alias in ("mine", "a name of one's own: delta.`/tmp`"):
        outer = Relation()
        outer.subquery_alias.alias = alias
        outer.subquery_alias.input.CopyFrom(named)
        passed(asked(outer))


@pytest.mark.parametrize("kind", refused_kinds(Relation, "rel_type"))
def test_a_relation_that_is_not_known_to_be_harmless_is_refused_wherever_it_stands(kind: str) -> None:
    bad = bare(Relation, kind)
    joined, within = Relation(), Relation()
    joined.join.left.CopyFrom(table("partials"))
    joined.join.right.CopyFrom(bad)
    within.with_relations.root.CopyFrom(table("partials"))
    within.with_relations.references.add().CopyFrom(joined)
    for relation in (bad, joined, within):
        for request in (asked(relation), analysed(relation)):
            with pytest.raises(UserError, match=kind.split("_")[0]):
                passed(request)


@pytest.mark.parametrize("kind", refused_kinds(Expression, "expr_type"))
def test_an_expression_that_is_not_known_to_be_harmless_is_refused(kind: str) -> None:
    with pytest.raises(UserError):
        passed(asked(where(called("not", bare(Expression, kind)))))
    statement = sql("SELECT :a")
    statement.sql.named_arguments["a"].CopyFrom(bare(Expression, kind))
    with pytest.raises(UserError):
        passed(asked(statement))


@pytest.mark.parametrize("kind", refused_kinds(commands_pb2.Command, "command_type"))
def test_a_command_is_refused(kind: str) -> None:
    request = base_pb2.ExecutePlanRequest(session_id=SESSION)
    request.plan.command.CopyFrom(bare(commands_pb2.Command, kind))
    with pytest.raises(UserError):
        passed(request)
    request.plan.compressed_operation.data = zstandard.compress(bare(commands_pb2.Command, kind).SerializeToString())
    request.plan.compressed_operation.op_type = base_pb2.Plan.CompressedOperation.OP_TYPE_COMMAND
    with pytest.raises(UserError):
        passed(request)


@pytest.mark.parametrize("kind", refused_kinds(base_pb2.AnalyzePlanRequest, "analyze"))
def test_an_analysis_that_does_more_than_look_is_refused(kind: str) -> None:
    with pytest.raises(UserError):
        passed(bare(lambda: base_pb2.AnalyzePlanRequest(session_id=SESSION), kind))


@pytest.mark.parametrize("kind", refused_kinds(catalog_pb2.Catalog, "cat_type"))
def test_the_catalogue_is_not_changed(kind: str) -> None:
    relation = Relation()
    getattr(relation.catalog, kind).SetInParent()
    with pytest.raises(UserError):
        passed(asked(relation))


def test_sql_as_a_command_is_checked_like_any_other() -> None:
    request = base_pb2.ExecutePlanRequest(session_id=SESSION)
    request.plan.command.sql_command.input.CopyFrom(with_alias("mine", sql("SELECT 1 FROM mine")))
    passed(request)
    request.plan.command.sql_command.input.CopyFrom(sql("DROP VIEW partials"))
    with pytest.raises(UserError):
        passed(request)
    request.plan.command.sql_command.ClearField("input")
    request.plan.command.sql_command.sql = "DROP VIEW partials"
    with pytest.raises(UserError):
        passed(request)


def test_a_compressed_plan_is_checked_and_a_bomb_is_not_unpacked() -> None:
    request = base_pb2.ExecutePlanRequest(session_id=SESSION)
    packed = request.plan.compressed_operation
    packed.op_type = base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION
    packed.data = zstandard.compress(table("partials").SerializeToString())
    assert passed(request).plan.root == table("partials")
    for data in (zstandard.compress(bytes(MOST_BYTES + 2)), b"no frame", zstandard.compress(b"no relation")):
        request.plan.compressed_operation.data = data
        with pytest.raises(UserError):
            passed(request)


def test_a_request_that_is_too_large_or_nested_too_deeply_is_refused_before_it_is_read() -> None:
    with pytest.raises(UserError, match="64 MiB"):
        read_request(base_pb2.ExecutePlanRequest, bytes(MOST_BYTES + 1))
    relation = table("partials")
    for _ in range(60):
        outer = Relation()
        outer.limit.input.CopyFrom(relation)
        relation = outer
    with pytest.raises(UserError, match="a hundred levels deep"):
        passed(asked(relation))


def test_schemas_of_rows_pass_and_are_written_anew() -> None:
    relation = Relation()
    for sent in ("a INT, b ARRAY<STRUCT<c: STRING>>", '{"type": "struct", "fields": []}'):
        relation.local_relation.schema = sent
        assert passed(asked(relation)).plan.root.local_relation.schema.replace(" ", "") == sent.replace(" ", "")


def test_settings_are_read_and_changed_by_name() -> None:
    request = base_pb2.ConfigRequest(session_id=SESSION)
    request.operation.get.keys.append("spark.sql.session.timeZone")
    passed(request)
    request.operation.set.pairs.add(key="spark.sql.session.timeZone", value="Europe/Berlin")
    passed(request)
    request.operation.set.pairs.add(key="spark.app.name", value="a notebook")
    assert [pair.key for pair in passed(request).operation.set.pairs] == ["spark.sql.session.timeZone"]


def test_all_settings_are_those_that_may_be_read() -> None:
    answer = base_pb2.ConfigResponse(session_id=SESSION)
    for prefix in ("", "spark."):
        request = base_pb2.ConfigRequest(session_id=SESSION)
        request.operation.get_all.prefix = prefix
        del answer.pairs[:]
        for key in ("spark.connect.authenticate.token", "spark.sql.ansi.enabled"):
            answer.pairs.add(key=key.removeprefix(prefix), value="x")
        left = base_pb2.ConfigResponse.FromString(readable_answer(passed(request), answer.SerializeToString()))
        assert [prefix + pair.key for pair in left.pairs] == ["spark.sql.ansi.enabled"]


def test_rows_come_under_the_hash_of_what_they_are() -> None:
    schema = json.dumps({"type": "struct", "fields": []}).encode()
    for data in (ARROW, schema):
        request = base_pb2.AddArtifactsRequest(session_id=SESSION)
        request.batch.artifacts.add(name=f"cache/{hashlib.sha256(data).hexdigest()}").data.data = data
        passed(request)
    for data in (b"PK a jar", b'{"type":"udt","class":"x"}'):
        request = base_pb2.AddArtifactsRequest(session_id=SESSION)
        request.batch.artifacts.add(name=f"cache/{hashlib.sha256(data).hexdigest()}").data.data = data
        with pytest.raises(UserError, match="no rows"):
            passed(request)


def test_rows_in_parts_are_refused_where_they_are_not_those_that_were_named() -> None:
    parts = [ARROW, b"more", b"and more"]
    for hashed, fits in ((hashlib.sha256(b"".join(parts)).hexdigest(), True), ("0" * 64, False)):
        rows, begun = OwnRows(), base_pb2.AddArtifactsRequest(session_id=SESSION)
        begun.begin_chunk.name, begun.begin_chunk.num_chunks = f"cache/{hashed}", 3
        begun.begin_chunk.initial_chunk.data = parts[0]
        rows.check(begun)
        for part in parts[1:]:
            chunk = base_pb2.AddArtifactsRequest(session_id=SESSION)
            chunk.chunk.data = part
            if fits or part != parts[-1]:
                rows.check(chunk)
            else:
                with pytest.raises(UserError, match="hash"):
                    rows.check(chunk)


def test_every_statement_and_every_expression_in_text_is_looked_at_twice_as_it_will_run() -> None:
    seen: list[str] = []

    def look(statement: str, names: Any) -> None:
        seen.append(statement)
        if "oldest" in statement:
            raise UserError("Spark reads this otherwise", "write it otherwise")

    known = Known(frozenset(NAMES), look)
    checked(asked(sql("select QUEUE -- a comment\n from queue_health_now")), known)
    checked(asked(where(in_text("depth>1 /* more */"))), known)
    assert seen == ["SELECT `QUEUE` FROM `queue_health_now`", "SELECT `depth` > 1"]
    for request in (asked(sql("SELECT oldest FROM queue_health_now")), asked(where(in_text("oldest > 1")))):
        with pytest.raises(UserError, match="otherwise"):
            checked(request, known)


def with_arguments(query: str, **values: Expression) -> Any:
    relation = sql(query)
    for name, value in values.items():
        relation.sql.named_arguments[name].CopyFrom(value)
    return asked(relation)


def test_arguments_of_a_statement_are_literals_when_it_is_read() -> None:
    texts = {"tenant": text("a' OR 1=1 --"), "most": Expression(literal=Expression.Literal(integer=-7))}
    read = passed(with_arguments("SELECT * FROM partials WHERE tenant = :tenant AND enqueued > :most", **texts))
    assert not read.plan.root.sql.named_arguments
    where_clause = r"WHERE `tenant` = 'a\' OR 1=1 --' AND `enqueued` > (-7)"
    assert read.plan.root.sql.query == f"SELECT * FROM `partials` {where_clause}"


@pytest.mark.parametrize(
    "value",
    [
        called("reflect", text("java.lang.System")),
        Expression(literal=Expression.Literal(binary=b"x")),
        Expression(literal=Expression.Literal(timestamp=-(2**62))),
        Expression(literal=Expression.Literal(double=float("nan"))),
        Expression(),
    ],
    ids=["call", "bytes", "instant", "no number", "nothing"],
)
def test_arguments_that_are_no_plain_values_are_refused(value: Expression) -> None:
    with pytest.raises(UserError):
        passed(with_arguments("SELECT :x AS x", x=value))


def test_a_statement_with_a_parameter_and_no_argument_is_refused() -> None:
    with pytest.raises(UserError):
        passed(with_arguments("SELECT :x AS x", y=text("a")))
    with pytest.raises(UserError):
        passed(asked(sql("SELECT :x AS x")))
