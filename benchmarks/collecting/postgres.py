"""PostgreSQL: a cycle beside a million finished jobs, for each library whose jobs are read.

Each database has, beside what ended, 20,000 jobs that wait in 20 queues of 50 tenants, 5,000 that are delayed, 1,000 of
them retries. Beside it the query that people give to a general exporter: all jobs, counted by queue and state.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator

import psycopg
import yaml

from benchmarks.collecting.exporters import scraped
from benchmarks.figures import Figure
from collectors.postgres.source import PostgresSource
from tests.collectors.postgres.filling import WAITING, fill, index, wait_in, worked
from tests.collectors.postgres.reading import PASSWORD, Database
from tests.support import postgresql
from tests.support.ports import free_ports
from tests.support.postgresql import PostgresServer

ENDED, WAITING_JOBS, CYCLES = 1_000_000, 25_000, 7
#: Layout → the query of a general exporter: the whole table.
_GENERAL = {
    "river": "SELECT queue, state, count(*), min(scheduled_at) FROM river_job GROUP BY 1, 2",
    "oban": "SELECT queue, state, count(*), min(scheduled_at) FROM oban_jobs GROUP BY 1, 2",
    "pgboss": "SELECT name, state, count(*), min(start_after) FROM pgboss.job GROUP BY 1, 2",
    "procrastinate": "SELECT queue_name, status, count(*), min(scheduled_at) FROM procrastinate_jobs GROUP BY 1, 2",
    "good_job": "SELECT queue_name, finished_at IS NULL, count(*), min(scheduled_at) FROM good_jobs GROUP BY 1, 2",
}


def measure(scale: float) -> Iterator[Figure]:
    """Seconds of a cycle for each layout, by tenant, and the longest of them."""
    os.environ[PASSWORD] = postgresql.PASSWORD
    with PostgresServer() as server:
        longest = 0.0
        for layout in WAITING:
            database = worked(server, layout)
            index(database, layout)
            fill(database, layout, max(1000, int(ENDED * scale)))
            wait_in(database, layout, max(100, int(WAITING_JOBS * scale)))
            ours = asyncio.run(_cycles(database, layout))
            longest = max(longest, ours)
            yield Figure(f"postgres_1m_jobs_{layout}_seconds", ours, "s", _general(database, layout))
            if layout == "river" and (program := shutil.which("prometheus-postgres-exporter")):
                yield Figure("postgres_1m_jobs_exporter_seconds", _exporter(program, database), "s", ours)
            database.drop()
        yield Figure("postgres_1m_jobs_seconds", longest, "s")


async def _cycles(database: Database, layout: str) -> float:
    source = PostgresSource(database.broker(**{layout: {"tenant": "json:tenant"}}, statement_timeout=10))
    await source.open()
    seconds = []
    for _ in range(CYCLES):
        began = time.perf_counter()
        samples = await source.read()
        seconds.append(time.perf_counter() - began)
        assert all(sample.depth is not None and sample.in_flight is not None for sample in samples), samples
        assert sum(sample.depth or 0 for sample in samples) > 0
    await source.close()
    return statistics.median(seconds[1:])


def _general(database: Database, layout: str) -> float | None:
    if layout not in _GENERAL:
        return None
    seconds = []
    with psycopg.connect(database.url, autocommit=True) as connection:
        for _ in range(3):
            began = time.perf_counter()
            connection.execute(_GENERAL[layout].encode()).fetchall()
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _exporter(program: str, database: Database) -> float:
    """Seconds of a scrape of postgres_exporter with that query, which must tell as many waiting jobs as there are."""
    (port,) = free_ports(1)
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as queries:
        columns = [{"queue": {"usage": "LABEL", "description": "q"}}, {"state": {"usage": "LABEL", "description": "s"}}]
        columns.append({"jobs": {"usage": "GAUGE", "description": "n"}})
        query = "SELECT queue, state::text, count(*) AS jobs FROM river_job GROUP BY 1, 2"
        yaml.safe_dump({"river": {"query": query, "metrics": columns}}, queries)
        queries.flush()
        options = ["--disable-default-metrics", "--disable-settings-metrics", f"--extend.query-path={queries.name}"]
        command = [program, *options, f"--web.listen-address=127.0.0.1:{port}"]
        # It takes no password with a space in it.
        database.run("CREATE ROLE exporter LOGIN PASSWORD 'exporter'; GRANT SELECT ON river_job TO exporter")
        where = f"postgresql://exporter:exporter@127.0.0.1:{database.server.port}/{database.name}?sslmode=disable"
        seconds, told = scraped(
            command,
            {"DATA_SOURCE_NAME": where},
            port,
            lambda line: line.startswith("river_jobs{") and 'state="available"' in line,
        )
        ((there,),) = database.rows("SELECT count(*) FROM river_job WHERE state = 'available'")
        assert told == there, (told, there)
        return seconds
