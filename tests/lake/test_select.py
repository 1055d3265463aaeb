"""Read-only SQL: what is not one SELECT over known views is refused in a line that names the mend."""

from __future__ import annotations

import pytest

from lake.errors import UserError
from lake.select import check, tables_of

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
