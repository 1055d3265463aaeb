"""One PostgreSQL for all tests of this folder, and a database for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.alerts.conftest import receivers
from tests.collectors.postgres.reading import PASSWORD, Database
from tests.support import postgresql
from tests.support.postgresql import PostgresServer

__all__ = ["database", "receivers", "server"]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A running server."""
    made = PostgresServer()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def database(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A new database."""
    monkeypatch.setenv(PASSWORD, postgresql.PASSWORD)
    return Database.make(server)
