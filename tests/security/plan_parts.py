"""What plans of Spark Connect are made of: requests, relations and expressions as a client would send them."""

from __future__ import annotations

from pyspark.sql.connect.proto import base_pb2, expressions_pb2, relations_pb2

NAMES = frozenset({"partials", "queue_health_now", "limits"})
SESSION = "6b0c2a7e-3c1d-4c59-9f0e-2a8c5f1d7b11"
Relation, Expression = relations_pb2.Relation, expressions_pb2.Expression


def table(name: str) -> Relation:
    """A table read by its name."""
    relation = Relation()
    relation.read.named_table.unparsed_identifier = name
    return relation


def sql(query: str) -> Relation:
    """A statement as a relation."""
    relation = Relation()
    relation.sql.query = query
    return relation


def called(function: str, *arguments: Expression) -> Expression:
    """A function's call."""
    expression = Expression()
    expression.unresolved_function.function_name = function
    expression.unresolved_function.arguments.extend(arguments)
    return expression


def text(value: str) -> Expression:
    """A literal."""
    expression = Expression()
    expression.literal.string = value
    return expression


def where(condition: Expression, relation: Relation | None = None) -> Relation:
    """Rows under a condition."""
    made = Relation()
    made.filter.input.CopyFrom(relation or table("partials"))
    made.filter.condition.CopyFrom(condition)
    return made


def asked(relation: Relation) -> base_pb2.ExecutePlanRequest:
    """The request for the rows of ``relation``."""
    request = base_pb2.ExecutePlanRequest(session_id=SESSION)
    request.user_context.user_id = "test"
    request.plan.root.CopyFrom(relation)
    return request


def analysed(relation: Relation) -> base_pb2.AnalyzePlanRequest:
    """The request for the schema of ``relation``."""
    request = base_pb2.AnalyzePlanRequest(session_id=SESSION)
    request.schema.plan.root.CopyFrom(relation)
    return request


def with_alias(alias: str, root: Relation) -> Relation:
    """``root`` beside a reference that is named ``alias``."""
    relation = Relation()
    relation.with_relations.root.CopyFrom(root)
    reference = relation.with_relations.references.add()
    reference.subquery_alias.alias = alias
    reference.subquery_alias.input.CopyFrom(table("partials"))
    return relation
