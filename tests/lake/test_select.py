"""Read-only SQL: what is not one SELECT over known views is refused in a line that names the fix."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from alerts.control.active_limit import Target
from alerts.control.statements import Scope, flows
from lake import reader
from lake.errors import UserError
from lake.select import (
    canonical,
    check,
    check_expression,
    for_duckdb,
    tables_of,
    with_values,
    without_values,
)

VIEWS = {"tenant_backlog_now", "queue_health"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM tenant_backlog_now",
        "WITH worst AS (SELECT tenant FROM tenant_backlog_now) SELECT * FROM worst",
        "SELECT tenant FROM tenant_backlog_now UNION ALL SELECT queue FROM queue_health",
        "SELECT 1 AS value",
    ],
)
def test_a_query_over_known_views_is_let_through(sql: str) -> None:
    assert check(sql, VIEWS) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE queue_health",
        "DELETE FROM queue_health",
        "INSERT INTO queue_health SELECT * FROM queue_health",
        "CREATE TABLE x AS SELECT 1",
        "SET spark.x = 1",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM delta.`/tmp/x`",
        "SELECT * FROM other.queue_health",
        "SELECT reflect('java.lang.System', 'exit', 0)",
        "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
        "SELECT `reflect`('java.lang.System', 'exit', 0)",
        "SELECT system.builtin.reflect('java.lang.System', 'exit', 0)",
        "SELECT transform(array(1), n -> reflect('java.lang.System', 'exit', n))",
        "SELECT IDENTIFIER('reflect')('java.lang.System', 'exit', 0)",
        "SELECT * FROM IDENTIFIER('queue_health')",
        "SELECT TRANSFORM(queue) USING 'cat' AS (line) FROM queue_health",
        "FROM queue_health SELECT TRANSFORM(queue) USING 'cat'",
        "EXECUTE IMMEDIATE 'DROP TABLE queue_health'",
        "not sql at all (",
        "",
    ],
)
def test_everything_else_is_refused_as_the_users_mistake(sql: str) -> None:
    with pytest.raises(UserError):
        check(sql, VIEWS)


def test_an_unknown_view_is_answered_with_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match="did you mean tenant_backlog_now"):
        check("SELECT * FROM tenant_backlog_nwo", VIEWS)


def test_with_clauses_do_not_count_as_tables() -> None:
    query = check("WITH a AS (SELECT 1 FROM queue_health) SELECT * FROM a", VIEWS)
    assert tables_of(query) == {"queue_health"}


@pytest.mark.parametrize(
    "sql", ["*", "a + 1 AS b", "count(DISTINCT x)", "transform(h, c -> c.count)", "CASE WHEN a THEN 1 END", "x -- why"]
)
def test_an_expression_is_let_through_as_it_was_understood(sql: str) -> None:
    understood = check_expression(sql)
    assert check_expression(understood) == understood


@pytest.mark.parametrize(
    "sql",
    [
        *("a FROM t", "1; DROP VIEW x", "(SELECT 1)", "1 UNION SELECT 2", "a LIMIT 1", "a WHERE b", "a, b", ""),
        *(
            "reflect('a', 'b')",
            "x IN (SELECT 1)",
            "TRANSFORM(a) USING 'cat'",
            "exists(array(1), n -> java_method('a'))",
        ),
    ],
)
def test_what_is_more_than_an_expression_is_refused(sql: str) -> None:
    with pytest.raises(UserError):
        check_expression(sql)


@pytest.mark.parametrize("call", ["date_trunc()", "upper(date_trunc())", "substring()", "transform(1)", "nvl2()"])
def test_a_call_that_cannot_be_carried_over_is_a_clear_refusal(call: str) -> None:
    try:
        for_duckdb(canonical(f"SELECT {call} FROM partials", {"partials"}))
    except UserError as error:
        assert str(error)


@pytest.mark.parametrize("sql", ["SELECT 1 AS `${env:HOME}`", "WITH `${x}` AS (SELECT 1) SELECT * FROM `${x}`"])
def test_no_name_holds_a_variable_that_spark_would_put_a_value_for(sql: str) -> None:
    with pytest.raises(UserError, match=r"\$\{"):
        canonical(sql, VIEWS)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "INNER JOIN", "FULL OUTER JOIN", "LEFT SEMI JOIN"])
def test_joins_that_nobody_could_parse_in_time_are_refused_before_they_are_parsed(join: str) -> None:
    with pytest.raises(UserError, match="JOINs stand without ON"):
        canonical("SELECT 1 FROM queue_health" + f" {join} queue_health" * 60, VIEWS)


def test_many_joins_with_their_conditions_are_a_question() -> None:
    joined = "".join(f" JOIN queue_health AS h{number} ON true" for number in range(20))
    assert canonical("SELECT 1 FROM queue_health" + joined + " CROSS JOIN queue_health" * 20, VIEWS)


@pytest.mark.parametrize(
    "where",
    [
        "bucket_start >= timestamp_micros(1777636819000000) AND bucket_start < timestamp_micros(1777636820123456)",
        "tenant = 'order-1777636819000000' OR tenant = '1777636819000000'",
        "tenant = '8000000000000007' AND bucket_start < timestamp_micros(1777636819000000)",
        " OR ".join(f"bucket_start = timestamp_micros({1777636819000000 + second})" for second in range(120)),
        "tenant IN (SELECT explode(split('o.r-d/e:r@ 1777636819000000\ue000ü\ue000', '\ue000')) AS name)",
        "tenant IN (SELECT explode(split('', '\ue000')) AS name)",
        "tenant IN (SELECT explode(split('a\\'b\\\\', '\ue000')) AS name)",
        "enqueued > 99999999999999999 OR enqueued > 1 - 1777636819000001 % 1000000 / 1e6",
    ],
)
def test_a_statement_is_the_same_whether_its_values_were_apart_or_not(where: str) -> None:
    allowed = ["partials"]
    sql = f"SELECT tenant FROM partials WHERE {where}"
    pattern, values = without_values(sql)
    assert with_values(pattern, values) == sql
    assert with_values(canonical(pattern, allowed), values) == canonical(sql, allowed)
    assert with_values(for_duckdb(canonical(pattern, allowed)), values) == for_duckdb(canonical(sql, allowed))


def test_what_is_asked_of_each_moment_is_understood_once_and_a_mistake_told_in_its_own_words() -> None:
    def sql(name: str, at: datetime) -> str:
        scope = Scope.of(frozenset({Target("nats", "orders", name)}), frozenset({name}))
        return flows(scope, {"nats": at}, 5, 60)

    at = datetime(2026, 5, 1, 12, 0, 19, 900_000, UTC)
    known = reader._understood(sql("t0", at))
    asked = reader._understood_once.cache_info().misses
    again = reader._understood(sql("another-one", at + timedelta(seconds=1.05)))
    assert reader._understood_once.cache_info().misses == asked
    assert "'another-one'" in again[0] and "1777636820950000" in again[0] and again[1:] == known[1:]
    with pytest.raises(UserError, match="1777636819000001"):
        reader._understood("SELECT tenant FROM partials WHERE tenant 1777636819000001")
