"""Databases of the tests, what applications did in them, and what the sampler reads there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from collectors.postgres.settings import PostgresBroker
from collectors.postgres.source import PostgresSource
from collectors.samples import METRIC_NAMES, Sample
from tests.support.postgresql import PostgresServer
from tests.support.programs import go_program, node, node_folder, python_packages
from tests.support.waiting import wait_until

PASSWORD = "SUITE_POSTGRES_PASSWORD"
_HERE = Path(__file__).parent
_PROGRAMS = _HERE / "programs"
_NUMBERS = count(1)


@dataclass(frozen=True)
class Database:
    """One database of a server."""

    server: PostgresServer
    name: str

    @classmethod
    def make(cls, server: PostgresServer, template: Database | None = None) -> Database:
        """A new one, with nothing in it, or with what ``template`` has."""
        made = cls(server, f"d{next(_NUMBERS)}")
        like = f" TEMPLATE {template.name}" if template is not None else ""
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {made.name}{like}".encode())
        return made

    def drop(self) -> None:
        """Remove it: nobody is connected."""
        with self.server.connect() as connection:
            connection.execute(f"DROP DATABASE {self.name}".encode())

    def alone(self) -> None:
        """Let nobody be connected: sessions of a killed application end in their own time."""
        with self.server.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self.name])
            others = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            wait_until(lambda: connection.execute(others, [self.name]).fetchone() == (0,), "the sessions to end")

    @property
    def url(self) -> str:
        """Where the owner connects."""
        return self.server.url(database=self.name)

    def run(self, statements: str) -> None:
        """Run statements as the owner of the database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statements.encode())

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def schema(self, name: str) -> None:
        """Make the tables of ``schemas/NAME.sql``."""
        self.run((_HERE / "schemas" / f"{name}.sql").read_text(encoding="utf-8"))

    def settings(self, **changes: Any) -> dict[str, Any]:
        """How Sojourn is told of it."""
        url = f"postgresql://127.0.0.1:{self.server.port}/{self.name}"
        return {"kind": "postgres", "url": url, "user": "sojourn", "password": {"env": PASSWORD}, **changes}

    def broker(self, **changes: Any) -> PostgresBroker:
        """The settings as they are read."""
        return PostgresBroker.model_validate({"name": "pg", **self.settings(**changes)})

    def read(self, **changes: Any) -> dict[str, Sample]:
        """One reading: queue → sample."""

        async def work() -> dict[str, Sample]:
            source = PostgresSource(self.broker(**changes))
            await source.open()
            try:
                return by_name(await source.read())
            finally:
                await source.close()

        return asyncio.run(work())


def by_name(samples: list[Sample]) -> dict[str, Sample]:
    """queue → sample; each once, what is null has a reason, and nothing else."""
    found = {sample.queue: sample for sample in samples}
    assert len(found) == len(samples)
    for sample in samples:
        unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None} - {"dead_letter_for"}
        assert unknown == set(sample.unavailable) - {"dead_letter_for"}, sample
        assert all(sample.unavailable.values())
    return found


class Truth(NamedTuple):
    """What an application did, in seconds since 1970: before and after a job was added, when one began to run."""

    stuck: tuple[float, float]
    began: float
    first: tuple[float, float]


@contextmanager
def application(name: str, database: Database) -> Iterator[Truth]:
    """An application that has done its work, of which one job is still running: ``river``, ``pgboss 9`` …"""
    command, environment = _command(name, database)
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = (line for line in process.stdout if line.startswith("{"))
        line = next(lines, None)
        assert line is not None, f"{name} ended"
        told = json.loads(line)
        yield Truth(tuple(told["stuck"]), told["began"], tuple(told["first"]))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for(database: Database, statement: str) -> None:
    """Wait until a statement's first value is true."""
    wait_until(lambda: bool(database.rows(statement)[0][0]), statement)


def pgboss_tables(version: int) -> str:
    """The SQL of the tables of a version of pg-boss, by that version."""
    command = [str(node()), "pgboss_tables.mjs", str(version)]
    told = subprocess.run(command, cwd=node_folder(_PROGRAMS / "node"), capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return told.stdout


def finish(name: str, database: Database) -> None:
    """Run an application to its end."""
    command, environment = _command(name, database)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _command(name: str, database: Database) -> tuple[list[str], dict[str, str]]:
    """How an application is run: ``river``, ``pgboss 9``, ``procrastinate redrive`` …, and its environment."""
    program, *arguments = name.split()
    environment = dict(os.environ)
    if program == "river":
        command = [str(go_program(_PROGRAMS / "river"))]
    elif program in ("pgboss", "graphile"):
        command = [str(node()), str(node_folder(_PROGRAMS / "node") / f"{program}.mjs")]
    else:
        folder = _PROGRAMS / "python"
        environment["PYTHONPATH"] = str(python_packages(folder))
        command = [sys.executable, str(folder / f"{program}_app.py")]
    return [*command, database.url, *arguments], environment
