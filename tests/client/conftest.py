"""Servers for the client to talk to: the real limits API, and one that answers what a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

import sojourn
from alerts.control.api import make_app
from alerts.control.board import Board, ServedLimit
from lake.web.access import AccessControl
from lake.web.policy import Policy
from sojourn.client import sender as sending
from tests.client.collector import Collector, collecting
from tests.client.places import NOWHERE
from tests.support.moved_clock import Clock
from tests.support.waiting import PATIENCE


class Api:
    """The real app over a board that the test writes on; can be stopped and started again at the same port."""

    def __init__(self, token: str | None = None, max_waiters: int = 1000) -> None:
        self.board = Board(max_waiters)
        app = make_app(self.board, SimpleNamespace(paused=False))  # type: ignore[arg-type]
        self._app = AccessControl(app, Policy(token=token))
        self._port = 0
        self._server: uvicorn.Server | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def limit(
        self, rate: float, *, tenant: str = "noisy", lease: float = 60, burst: float = 1, broker: str = "nats"
    ) -> None:
        until = datetime.now(UTC) + timedelta(seconds=lease)
        self.board.publish((ServedLimit(broker, "orders", tenant, rate, burst, until, "why", "a1"),))

    def start(self) -> None:
        config = uvicorn.Config(
            self._app,
            host="127.0.0.1",
            port=self._port,
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server is not None and self._server.started)
        self._port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)


def until(condition: Callable[[], Any], seconds: float = 15) -> None:
    """Wait until ``condition`` holds; fails after ``seconds``."""
    deadline = time.monotonic() + PATIENCE * seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.fixture
def eventually() -> Callable[..., None]:
    return until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> Iterator[sojourn.Limits]:
    """Limits whose API is unreachable: tests say what is in force, and what time it is."""
    limits = sojourn.Limits(NOWHERE, clock=clock)
    yield limits
    limits.close()


@pytest.fixture
def make_api() -> Iterator[Callable[..., Api]]:
    apis: list[Api] = []

    def make(**options: Any) -> Api:
        apis.append(Api(**options))
        return apis[-1]

    yield make
    for api in apis:
        api.board.close()
        api.stop()


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    return make_api()


@pytest.fixture
def answering() -> Callable[..., Any]:
    """A server that gives each request the next of some answers: (status, headers, body); the last one for ever."""

    @contextmanager
    def serve(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[str]:
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

    return serve


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that a test commands."""
    with collecting() as collector:
        yield collector


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorders that repeat at once what was refused."""
    monkeypatch.setattr(sending, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(sending, "MAX_BACKOFF", 0.05)
    monkeypatch.setattr(sending, "SLOW_BACKOFF", 0.05)
