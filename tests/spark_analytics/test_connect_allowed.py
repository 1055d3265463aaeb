"""What passes the gate of Spark Connect: questions over the lake's names. No code runs, no file is read or written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zstandard
from pyspark.sql.connect.proto import base_pb2, catalog_pb2, commands_pb2, expressions_pb2, relations_pb2

from lake.errors import UserError
from spark_analytics.connect import allowed
from spark_analytics.connect.allowed import (
    MOST_BYTES,
    check_artifacts,
    check_config,
    checked_analysis,
    checked_plan,
)

NAMES = {"partials", "queue_health_now"}
Relation, Expression = relations_pb2.Relation, expressions_pb2.Expression


def table(name: str) -> Relation:
    relation = Relation()
    relation.read.named_table.unparsed_identifier = name
    return relation


def asked(relation: Relation) -> base_pb2.ExecutePlanRequest:
    request = base_pb2.ExecutePlanRequest()
    request.plan.root.CopyFrom(relation)
    return request


def sql(query: str) -> Relation:
    relation = Relation()
    relation.sql.query = query
    return relation


def condition(expression: Expression) -> Relation:
    relation = Relation()
    relation.filter.input.CopyFrom(table("partials"))
    relation.filter.condition.CopyFrom(expression)
    return relation


def text(expression: str) -> Expression:
    return Expression(expression_string=Expression.ExpressionString(expression=expression))


def called(function: str) -> Expression:
    return Expression(unresolved_function=Expression.UnresolvedFunction(function_name=function))


def bare(make: Callable[[], relations_pb2.Relation], kind: str) -> Relation:
    message = make()
    getattr(message, kind).SetInParent()
    return message


def kinds(message: type, oneof: str) -> list[str]:
    return [field.name for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "relation",
    [
        table("partials"),
        table("`Queue_Health_Now`"),
        sql("SELECT queue, count(*) FROM partials GROUP BY queue"),
        sql("SHOW TABLES"),
        sql("describe table queue_health_now"),
        condition(text("enqueued > 3")),
        condition(called("isnotnull")),
    ],
    ids=str,
)
def test_questions_pass(relation: Relation) -> None:
    checked_plan(asked(relation), NAMES)


def test_what_was_checked_is_what_runs() -> None:
    passed = checked_plan(asked(sql("select queue from partials -- ; DROP VIEW partials")), NAMES)
    assert passed.plan.root.sql.query == "SELECT `queue` FROM `partials`"
    passed = checked_plan(asked(condition(text("a >  1"))), NAMES)
    assert passed.plan.root.filter.condition.expression_string.expression == "a > 1"


def test_sql_may_name_the_data_frames_that_come_with_it() -> None:
    relation = Relation()
    relation.with_relations.root.CopyFrom(sql("SELECT * FROM mine"))
    mine = relation.with_relations.references.add()
    mine.subquery_alias.alias = "Mine"
    mine.subquery_alias.input.CopyFrom(table("partials"))
    checked_plan(asked(relation), NAMES)
    mine.subquery_alias.alias = "delta.`/tmp/x`"
    relation.with_relations.root.CopyFrom(sql("SELECT * FROM delta.`/tmp/x`"))
    with pytest.raises(UserError):
        checked_plan(asked(relation), NAMES)


REFUSED = {
    "a table that is none": table("information_schema.tables"),
    "files by name": table("parquet.`/etc`"),
    "files": bare(lambda: bare(Relation, "read"), "read"),
    "SQL that writes": sql("INSERT INTO partials SELECT * FROM partials"),
    "SQL that defines": sql("CREATE TEMPORARY FUNCTION f AS 'x.Y'"),
    "SQL over files": sql("SELECT * FROM text.`/etc/passwd`"),
    "SQL that sets": sql("SET spark.sql.catalog.x = x.Y"),
    "SQL that lists and more": sql("SHOW TABLES; DROP VIEW partials"),
    "SQL that adds code": sql("ADD JAR '/tmp/x.jar'"),
    "a function that runs code": condition(called("reflect")),
    "the same, quoted": condition(called("`system`.`builtin`.`java_method`")),
    "the same, in text": condition(text("reflect('java.lang.System', 'exit', 0)")),
    "a query in text": condition(text("queue IN (SELECT queue FROM text.`/etc/passwd`)")),
}


@pytest.mark.parametrize("relation", REFUSED.values(), ids=REFUSED)
def test_whatever_reaches_beyond_the_lake_is_refused(relation: Relation) -> None:
    with pytest.raises(UserError):
        checked_plan(asked(relation), NAMES)


@pytest.mark.parametrize("kind", sorted({*kinds(Relation, "rel_type")} - allowed._READS))
def test_a_relation_that_is_not_known_to_be_harmless_is_refused_wherever_it_stands(kind: str) -> None:
    bad = bare(Relation, kind)
    joined, within = Relation(), Relation()
    joined.join.left.CopyFrom(table("partials"))
    joined.join.right.CopyFrom(bad)
    within.with_relations.root.CopyFrom(table("partials"))
    within.with_relations.references.add().CopyFrom(joined)
    for relation in (bad, joined, within):
        with pytest.raises(UserError, match=kind.split("_")[0]):
            checked_plan(asked(relation), NAMES)
        analysis = base_pb2.AnalyzePlanRequest()
        analysis.schema.plan.root.CopyFrom(relation)
        with pytest.raises(UserError):
            checked_analysis(analysis, NAMES)


@pytest.mark.parametrize("kind", sorted({*kinds(Expression, "expr_type")} - allowed._EXPRESSIONS))
def test_an_expression_that_is_not_known_to_be_harmless_is_refused(kind: str) -> None:
    outer = called("not")
    outer.unresolved_function.arguments.add().CopyFrom(bare(Expression, kind))
    with pytest.raises(UserError):
        checked_plan(asked(condition(outer)), NAMES)


@pytest.mark.parametrize("kind", sorted({*kinds(commands_pb2.Command, "command_type")} - {"sql_command"}))
def test_a_command_is_refused(kind: str) -> None:
    request = base_pb2.ExecutePlanRequest()
    request.plan.command.CopyFrom(bare(commands_pb2.Command, kind))
    with pytest.raises(UserError):
        checked_plan(request, NAMES)
    request.plan.compressed_operation.data = zstandard.compress(bare(commands_pb2.Command, kind).SerializeToString())
    request.plan.compressed_operation.op_type = base_pb2.Plan.CompressedOperation.OP_TYPE_COMMAND
    with pytest.raises(UserError):
        checked_plan(request, NAMES)


def test_sql_as_a_command_is_checked_like_any_other() -> None:
    request = base_pb2.ExecutePlanRequest()
    request.plan.command.sql_command.input.CopyFrom(sql("SELECT 1 FROM partials"))
    checked_plan(request, NAMES)
    request.plan.command.sql_command.input.CopyFrom(sql("DROP VIEW partials"))
    with pytest.raises(UserError):
        checked_plan(request, NAMES)
    request.plan.command.sql_command.ClearField("input")
    request.plan.command.sql_command.sql = "DROP VIEW partials"
    with pytest.raises(UserError):
        checked_plan(request, NAMES)


@pytest.mark.parametrize("kind", sorted({*kinds(catalog_pb2.Catalog, "cat_type")} - allowed._CATALOG))
def test_the_catalogue_is_not_changed(kind: str) -> None:
    relation = Relation()
    getattr(relation.catalog, kind).SetInParent()
    with pytest.raises(UserError):
        checked_plan(asked(relation), NAMES)


def test_a_compressed_plan_is_checked_and_a_bomb_is_not_unpacked() -> None:
    request = base_pb2.ExecutePlanRequest()
    packed = request.plan.compressed_operation
    packed.op_type = base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION
    packed.data = zstandard.compress(table("partials").SerializeToString())
    assert checked_plan(request, NAMES).plan.root == table("partials")
    for data in (zstandard.compress(bytes(MOST_BYTES + 2)), b"no frame", zstandard.compress(b"no relation")):
        request.plan.compressed_operation.data = data
        with pytest.raises(UserError):
            checked_plan(request, NAMES)


def test_settings_are_read_and_only_those_of_the_session_changed() -> None:
    request = base_pb2.ConfigRequest()
    request.operation.get.keys.append("spark.master")
    check_config(request)
    for key, passes in (("spark.sql.session.timeZone", True), ("spark.sql.catalog.mine", False), ("spark.jars", False)):
        for verb in ("set", "unset"):
            change = base_pb2.ConfigRequest()
            if verb == "set":
                change.operation.set.pairs.add(key=key, value="x")
            else:
                change.operation.unset.keys.append(key)
            if passes:
                check_config(change)
            else:
                with pytest.raises(UserError, match=key):
                    check_config(change)
    with pytest.raises(UserError):
        check_config(base_pb2.ConfigRequest())


@pytest.mark.parametrize(
    "name", ["jars/x.jar", "pyfiles/x.py", "files/x", "cache/../jars/x.jar", f"cache/{'a' * 64}/x"]
)
def test_only_rows_are_taken_from_clients(name: str) -> None:
    whole, begun = base_pb2.AddArtifactsRequest(), base_pb2.AddArtifactsRequest()
    whole.batch.artifacts.add(name=f"cache/{'0' * 64}")
    begun.begin_chunk.name = f"cache/{'0' * 64}"
    for request in (whole, begun):
        check_artifacts(request)
    whole.batch.artifacts.add(name=name)
    begun.begin_chunk.name = name
    for request in (whole, begun):
        with pytest.raises(UserError):
            check_artifacts(request)
