"""A real HTTP receiver, and a lake whose gold can be written by hand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

from alerts.store.database import Store
from alerts.store.postgres import Postgres
from tests.alerts.helpers import GoldLake, Received, WebhookReceiver
from tests.support.postgresql import PostgresServer
from tests.support.waiting import PATIENCE


@pytest.fixture
def receivers() -> Iterator[Callable[..., WebhookReceiver]]:
    """Makes receivers, each at its own port."""
    servers: list[ThreadingHTTPServer] = []

    def make(*script: tuple[int, dict[str, str]], hold: float = 0.0, port: int = 0) -> WebhookReceiver:
        receiver = WebhookReceiver(list(script), hold)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(headers, body, datetime.now(UTC), self.path))
                time.sleep(receiver.hold)
                status, extra = receiver.script.pop(0) if receiver.script else (200, {})
                try:
                    self.send_response(status)
                    for name, value in {**extra, "content-length": "0"}.items():
                        self.send_header(name, value)
                    self.end_headers()
                except OSError:
                    return  # the sender was killed

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        return receiver

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def receiver(receivers: Callable[..., WebhookReceiver]) -> WebhookReceiver:
    return receivers()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests of a process; each has a schema of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    """The URL of a store with nothing in it."""
    return postgres.make_schema(f"test_{uuid4().hex}")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A new store of either kind, in which this process may write."""
    if request.param == "sqlite":
        yield tmp_path / "alerts.sqlite"
        return
    server = Postgres(request.getfixturevalue("schema"))
    server.make()
    with server.lease.held(threading.Event()) as held:
        assert held
        yield server


@pytest.fixture
def gold(tmp_path: Path) -> GoldLake:
    return GoldLake(tmp_path / "lake")


@pytest.fixture
def address() -> Callable[[Path], str]:
    """Where the alert process on a lake listens."""

    def of(root: Path) -> str:
        path = root / "state" / "run" / "alerts.json"
        deadline = time.monotonic() + PATIENCE * 30
        while not path.exists():
            assert time.monotonic() < deadline, "the alert process did not start"
            time.sleep(0.02)
        return str(json.loads(path.read_text())["url"])

    return of
