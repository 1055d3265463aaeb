"""A proxy between a client and a real HTTP server that makes chosen requests go wrong: refused, late, cut off, changed.

Everything that no rule touches passes through unchanged, so that the server's own answers are what is tested.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """What the client asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the proxy's own, or one that it changed."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changed:
    """The server's answer, as ``change`` makes it."""

    change: Callable[[Reply], Reply]


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends after ``after`` bytes of the server's answer."""

    after: int = 40


class Hang:
    """No answer until the proxy closes."""


class HangUp:
    """A whole answer, then the connection is closed without a word: the client believes that it is kept."""


#: What a rule may say of a request; None lets it pass.
Fault = Reply | Changed | Cut | Hang | HangUp | None
#: Decides over each request; called by several threads.
Rule = Callable[[Request], Fault]


class FaultyHttp:
    """The proxy on a free loopback port, before the server at ``target`` (none where the rule answers everything)."""

    def __init__(self, target: str = "", rule: Rule = lambda request: None, *, tls: ssl.SSLContext | None = None):
        self.rule = rule
        self.seen: list[Request] = []
        self._target = urlsplit(target).netloc
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> FaultyHttp:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def ask(self, request: Request) -> Reply:
        """The server's own answer."""
        connection = HTTPConnection(self._target, timeout=10)
        kept = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
        try:
            connection.request(request.method, request.path, request.body, kept)
            answer = connection.getresponse()
            type_ = answer.headers.get("Content-Type", "application/json")
            return Reply(answer.status, answer.read(), {"Content-Type": type_})
        finally:
            connection.close()

    def wait_closed(self) -> None:
        """Block until the proxy closes."""
        self._closing.wait(60)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Clients that leave are part of the tests."""


def _handler(proxy: FaultyHttp) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.command, self.path, dict(self.headers.items()), body)
            proxy.seen.append(request)
            fault = proxy.rule(request)
            if isinstance(fault, Hang):
                proxy.wait_closed()
                self._leave()
                return
            reply = fault if isinstance(fault, Reply) else proxy.ask(request)
            if isinstance(fault, Changed):
                reply = fault.change(reply)
            self._send(reply, reply.body[: fault.after] if isinstance(fault, Cut) else reply.body)
            if isinstance(fault, (Cut, HangUp)):
                self._leave()

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

        def _send(self, reply: Reply, body: bytes) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def _leave(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
