"""What PostgreSQL does to answer us: of jobs that have ended, however many, none is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from collectors.postgres.connection import Connection, Row
from collectors.postgres.source import PostgresSource
from tests.collectors.postgres.filling import FINISHED, UNSERVED, WAITING, fill, index, wait_in, worked
from tests.collectors.postgres.reading import PASSWORD, Database, by_name
from tests.support import postgresql
from tests.support.facts import Note
from tests.support.postgresql import PostgresServer

ENDED, WAIT = 20_000, 1_000
#: What a statement may look at of a table, row by row: what has not ended, by two ways at most, and its events.
FEW = 2 * WAIT + 100


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def asked(database: Database, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[list[str], dict[str, Any]]:
    """The statements of one cycle on the library's tables as they are sent, and the samples."""
    statements: list[str] = []
    ask = Connection.ask

    async def noted(self: Connection, statement: str) -> list[Row]:
        statements.append(statement)
        return await ask(self, statement)

    async def work() -> dict[str, Any]:
        source = PostgresSource(database.broker(**changes))
        await source.open()
        await source.read()
        statements.clear()
        monkeypatch.setattr(Connection, "ask", noted)
        samples = by_name(await source.read())
        await source.close()
        return samples

    samples = asyncio.run(work())
    return statements, samples


@pytest.mark.parametrize("name", FINISHED)
def test_jobs_that_have_ended_are_never_read(
    name: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch, note: Note
) -> None:
    monkeypatch.setenv(PASSWORD, postgresql.PASSWORD)
    database, layout = worked(server, name), name.split()[0]
    fill(database, name, ENDED)
    if name in WAITING:
        wait_in(database, name, WAIT)
    for indexed in (False, True) if name in UNSERVED else (True,):
        if indexed and name in UNSERVED:
            index(database, layout)
        statements, samples = asked(database, monkeypatch, **{layout: {"tenant": "json:tenant"}}, scan_at_most=0)
        for queue in UNSERVED.get(name, set()):
            known = samples[queue].in_flight is not None and samples[queue].depth is not None
            assert known == indexed
            if not indexed:
                assert "scan_at_most, 0 MiB" in samples[queue].unavailable["in_flight"]
        if name.startswith("pgboss") and indexed:
            assert (samples["orders"].in_flight, samples["orders.failed"].depth) == (1, 1)
        assert samples["orders"].depth >= 3 and samples["orders"].delayed >= 3
        for statement in statements:
            check(database, statement)
    note((layout, "depth", "without a look at finished jobs"))
    if name in ("pgboss 11", "pgboss 12"):
        note((layout, "cluster shapes", f"pg-boss {name.split()[1]} by its tables"))


def check(database: Database, statement: str) -> None:
    """No node of the statement's plan reads more than a few rows."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(Connection(database.broker())._begin.encode())
        ((((told,)),),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode()).fetchall()
    for node in nodes(told["Plan"]):
        if "Relation Name" not in node:
            continue
        looked = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        looked += node.get("Rows Removed by Index Recheck", 0) * node["Actual Loops"]
        assert looked <= FEW, f"{node['Node Type']} of {node['Relation Name']} reads {looked} rows:\n{statement}"
