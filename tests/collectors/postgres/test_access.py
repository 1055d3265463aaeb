"""What the manual grants suffices and lets nobody write; what is not granted, there or in time is told, never zero."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.postgres.layouts import LAYOUTS
from tests.collectors.postgres.filling import worked
from tests.collectors.postgres.reading import Database
from tests.support.facts import Note, proves
from tests.support.postgresql import PostgresServer

PAGE = Path(__file__).parents[3] / "docs" / "brokers" / "postgres.md"
ROLE = "sojourn_reader"
PASSWORD = "reader's"


def granted() -> dict[str, str]:
    """Layout → the manual's statements for it."""
    (block,) = re.findall(r"```sql\n(CREATE ROLE.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    statements = [re.sub(r"--.*", "", statement).strip() for statement in re.sub(r" --[^\n]*", "", block).split(";")]
    found = {}
    for name, layout in LAYOUTS.items():
        first = next(iter(layout.tables))
        words = (f"{layout.schema}.{first}", f"IN SCHEMA {layout.schema} ", f" {first},", f" {first} ")
        mine = [one for one in statements if one.startswith("GRANT SELECT") and any(word in one for word in words)]
        assert len(mine) == 1, f"{name}: {mine}"
        found[name] = f"GRANT USAGE ON SCHEMA {layout.schema} TO sojourn; {mine[0]}".replace("TO sojourn", f"TO {ROLE}")
    return found


@pytest.fixture
def reader(database: Database, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Settings of a user without any rights."""
    if not database.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"):
        database.run(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
    monkeypatch.setenv("READERS_PASSWORD", PASSWORD)
    return {"user": ROLE, "password": {"env": "READERS_PASSWORD"}}


@proves("postgres", "auth", "user and password", "a role that may read the listed tables alone")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_grants_of_the_manual_suffice_and_without_them_everything_is_unknown(
    layout: str, server: PostgresServer, reader: dict[str, object], note: Note
) -> None:
    database = worked(server, layout)
    expected = database.read(**{layout: {}})
    (refused,) = database.read(**{layout: {}}, **reader).values()
    assert refused.depth is None and "GRANT SELECT" in refused.unavailable["depth"]
    for statement in granted()[layout].split(";"):
        database.run(statement)
    samples = database.read(**{layout: {}}, **reader)
    assert {name: (one.depth, one.in_flight, one.delayed, one.consumers) for name, one in samples.items()} == {
        name: (one.depth, one.in_flight, one.delayed, one.consumers) for name, one in expected.items()
    }
    first = next(iter(LAYOUTS[layout].tables))
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"SET ROLE {ROLE}".encode())
        refused_to_write = psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState
        with pytest.raises(refused_to_write):
            connection.execute(f'DELETE FROM {LAYOUTS[layout].schema}."{first}"'.encode())
    note((layout, "auth", "with the manual's grants alone"))


def test_nothing_is_written_even_by_a_user_who_may(database: Database) -> None:
    database.schema("oban")
    database.run("ALTER TABLE oban_jobs ADD COLUMN shown int")
    database.run(
        "CREATE FUNCTION spoil() RETURNS text LANGUAGE plpgsql AS $$BEGIN DELETE FROM public.kept; RETURN 'x'; END$$;"
        "ALTER TABLE oban_jobs RENAME TO kept; CREATE VIEW oban_jobs AS SELECT *, spoil() AS evil FROM kept"
    )
    database.run("INSERT INTO kept (worker) VALUES ('W')")
    (sample,) = database.read(oban={"tenant": "column:evil"}).values()
    assert sample.depth is None and "read-only transaction" in sample.unavailable["depth"]
    assert database.rows("SELECT count(*) FROM kept") == [(1,)]


def test_rows_that_row_security_hides_are_unknown_and_not_zero(
    server: PostgresServer, reader: dict[str, object]
) -> None:
    database = worked(server, "graphile")
    database.run(f"GRANT USAGE ON SCHEMA graphile_worker TO {ROLE}; GRANT SELECT ON graphile_worker.jobs TO {ROLE}")
    graphile = {"graphile": {"tenant": "json:tenant"}}
    (sample,) = database.read(**graphile, **reader).values()
    assert sample.depth is None and "_private_jobs" in sample.unavailable["depth"]
    (block,) = re.findall(r"```sql\n(GRANT SELECT ON graphile_worker._private_jobs.*?)```", PAGE.read_text(), re.DOTALL)
    grant, *policies = block.replace("TO sojourn", f"TO {ROLE}").strip().split("\n")
    database.run(grant)
    (sample,) = database.read(**graphile, **reader).values()
    assert sample.depth is None and "_private_jobs" in sample.unavailable["depth"], "row security hides all rows"
    database.run("".join(policies))
    orders = database.read(**graphile, **reader)["orders"]
    assert orders.depth == 3 and orders.tenants is not None and {one.tenant for one in orders.tenants} == {"a", "b"}
    database.schema("oban")
    database.run(f"INSERT INTO oban_jobs (worker) VALUES ('W'); GRANT SELECT ON oban_jobs TO {ROLE}")
    database.run("ALTER TABLE oban_jobs ENABLE ROW LEVEL SECURITY")
    (sample,) = database.read(oban={}, **reader).values()
    assert sample.depth is None and "row security" in sample.unavailable["depth"]


def test_a_wrong_password_and_a_database_that_is_not_there_are_the_users_to_mend(
    database: Database, reader: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READERS_PASSWORD", "another")
    with pytest.raises(CredentialsRefused, match="password authentication failed") as refused:
        database.read(**reader)
    assert "another" not in str(refused.value)
    with pytest.raises(CredentialsRefused, match="does not exist"):
        database.read(url=f"postgresql://127.0.0.1:{database.server.port}/nowhere")
    with pytest.raises(ConnectionLost):
        database.read(url="postgresql://127.0.0.1:1/nowhere", connect_timeout=1)
