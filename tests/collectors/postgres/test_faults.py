"""Tables that are missing, strange, locked or slow; connections that go; primaries that are none any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.postgres.source import PostgresSource
from tests.collectors.postgres.reading import PASSWORD, Database, by_name
from tests.collectors.postgres.test_schemas import OBAN
from tests.support.certificates import make_certificates
from tests.support.facts import proves
from tests.support.postgresql import PASSWORD as SERVER_PASSWORD
from tests.support.postgresql import PostgresServer


def test_a_library_that_is_not_migrated_yet_is_told_where_it_is_named_and_read_once_it_is(database: Database) -> None:
    async def work() -> None:
        source = PostgresSource(database.broker(oban={}, discover_every=0.01))
        await source.open()
        (sample,) = await source.read()
        assert sample.queue == "oban" and "no table public.oban_jobs" in sample.unavailable["depth"]
        database.schema("oban")
        database.run(OBAN)
        await asyncio.sleep(0.02)
        assert by_name(await source.read())["orders"].depth == 3
        database.run("DROP TABLE oban_jobs")
        lost = by_name(await source.read())
        assert lost["orders"].depth is None and lost["orders.discarded"].depth is None, "in the rows that they had"
        assert "oban_jobs" in lost["orders"].unavailable["depth"]
        await source.close()

    asyncio.run(work())
    assert database.read() == {}, "unnamed, it is nobody's fault"


def test_one_library_whose_schema_is_unknown_spoils_no_other(database: Database) -> None:
    database.schema("oban")
    database.run(OBAN)
    database.schema("good_job")
    database.run("ALTER TABLE good_jobs RENAME COLUMN performed_at TO begun_at")
    samples = database.read()
    assert samples["orders"].depth == 3
    assert "no performed_at" in samples["good_job"].unavailable["depth"]
    assert "version unknown" in samples["good_job"].unavailable["in_flight"]


def test_two_libraries_with_queues_of_one_name_are_told_apart(database: Database) -> None:
    for layout in ("oban", "good_job"):
        database.schema(layout)
    database.run(OBAN)
    database.run(
        "INSERT INTO good_jobs (queue_name, error, finished_at) VALUES ('orders', 'x', now()), ('orders', NULL, NULL)"
    )
    samples = database.read()
    assert (samples["orders"].depth, samples["good_job:orders"].depth) == (3, 1)
    assert samples["good_job:orders.discarded"].dead_letter_for == "good_job:orders"


def test_a_table_that_is_locked_is_unknown_for_that_reason_and_whoever_locks_it_does_not_wait(
    database: Database,
) -> None:
    database.schema("oban")
    database.run(OBAN)

    async def work() -> None:
        source = PostgresSource(database.broker(lock_timeout=0.05))
        await source.open()
        with psycopg.connect(database.url) as migration:
            migration.execute("LOCK TABLE oban_jobs IN ACCESS EXCLUSIVE MODE")
            sample = by_name(await source.read())["orders"]
            assert "lock_timeout, 0.05 s" in sample.unavailable["depth"]
        assert by_name(await source.read())["orders"].depth == 3
        await source.close()

    asyncio.run(work())


def test_a_statement_that_takes_too_long_is_cut_off_and_told(database: Database) -> None:
    database.schema("oban")
    database.run(OBAN)
    database.run("CREATE FUNCTION slow() RETURNS text LANGUAGE sql STABLE AS $$SELECT pg_sleep(60)::text$$")
    database.run("ALTER TABLE oban_jobs RENAME TO t; CREATE VIEW oban_jobs AS SELECT *, slow() AS tenant FROM t")
    sample = database.read(oban={"tenant": "column:tenant"}, statement_timeout=0.1)["orders"]
    assert sample.unavailable["depth"] == "the statement took longer than statement_timeout, 0.1 s"


def test_documents_that_are_no_json_make_tenants_unknown_with_the_reason(database: Database) -> None:
    database.schema("solid_queue")
    database.run(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, created_at, updated_at)"
        " VALUES ('orders', 'J', 'nonsense', now(), now());"
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, created_at) VALUES (1, 'orders', now())"
    )
    assert database.read()["orders"].depth == 1
    (sample,) = database.read(solid_queue={"tenant": "json:tenant"}).values()
    assert sample.depth is None and "json" in sample.unavailable["depth"]


def test_the_fullest_queues_and_tenants_are_told_apart_and_the_rest_together(database: Database) -> None:
    database.schema("oban")
    database.run(
        "INSERT INTO oban_jobs (queue, worker, meta) SELECT 'q' || n % 7, 'W', jsonb_build_object('org', n % 150)"
        " FROM generate_series(0, 1049) AS n"
    )
    samples = database.read(oban={"tenant": ["header:org", "queue:{tenant}"]}, most_queues=3)
    assert {name: one.depth for name, one in samples.items() if one.dead_letter_for is None} == {
        "q0": 150, "q1": 150, "q2": 150, "*": 600,
    }  # fmt: skip
    shares = samples["q0"].tenants
    assert shares is not None and len(shares) == 100
    assert shares[0].tenant == "other" and sum(share.depth or 0 for share in shares) == 150
    assert database.read(queues=["q[12]"]).keys() == {"q1", "q2", "q1.discarded", "q2.discarded"}


@proves("postgres", "cluster shapes", "a primary that goes, and another that is tried; standbys, where asked for")
def test_another_server_is_read_where_the_first_is_away_and_a_standby_where_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = [PostgresServer(), PostgresServer()]
    first, second = servers
    try:
        for one in servers:
            one.start()
        there = Database.make(second)
        monkeypatch.setenv(PASSWORD, SERVER_PASSWORD)
        there.schema("oban")
        there.run(OBAN)
        with first.connect() as connection:
            connection.execute(f"CREATE DATABASE {there.name}".encode())

        async def work() -> None:
            url = f"postgresql://127.0.0.1:{first.port}/{there.name}"
            source = PostgresSource(there.broker(url=url, others=[f"127.0.0.1:{second.port}"], oban={}))
            await source.open()
            (sample,) = await source.read()
            assert sample.depth is None, "nothing is there"
            first.kill()
            with pytest.raises(ConnectionLost):
                for _ in range(600):  # who serves us notices by and by that nobody is above him any more
                    await source.read()
                    await asyncio.sleep(0.1)
            await source.open()
            assert by_name(await source.read())["orders"].depth == 3
            await source.close()

        asyncio.run(work())
        # What a standby is: a server that only recovers. One without a primary keeps what it has.
        second.become_standby()
        with pytest.raises(ConnectionLost):
            there.read(connect_timeout=2)
        samples = there.read(read_replica=True)
        assert samples["orders"].depth == 3
    finally:
        for one in servers:
            with suppress(AssertionError):
                one.stop()


@proves("postgres", "auth", "TLS")
def test_tls_trusts_the_authority_that_is_given_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, SERVER_PASSWORD)
    ours, others = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "others")
    with PostgresServer(ours) as server:
        database = Database.make(server)
        database.run("CREATE VIEW encrypted AS SELECT * FROM pg_stat_ssl WHERE ssl AND pid <> pg_backend_pid()")

        async def work() -> None:
            source = PostgresSource(database.broker(tls={"enabled": True, "ca": ours.ca}))
            await source.open()
            await source.read()
            assert len(database.rows("SELECT * FROM encrypted")) == 1
            await source.close()

        asyncio.run(work())
        for tls in ({"enabled": True, "ca": others.ca}, {"enabled": True}):
            with pytest.raises(CredentialsRefused, match="certificate"):
                database.read(tls=tls)
