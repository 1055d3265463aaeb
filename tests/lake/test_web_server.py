"""Access control with real sockets: what comes late, half, too much or not at all stops nobody."""

from __future__ import annotations

import gzip
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lake.errors import UserError
from lake.web.access import AccessControl
from lake.web.policy import JSON, Entrance, Limits, Policy
from lake.web.server import Certificate, WebServer, listen, served
from tests.support.certificates import make_certificates
from tests.support.waiting import wait_until

TAKES = frozenset({JSON})
HEAD = b"POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Served:
    """A listener that counts the bytes that it is sent."""

    def __init__(self, policy: Policy, certificate: Certificate | None) -> None:
        self.hold = threading.Event()
        self.hold.set()
        self.taken: list[int] = []

        async def take(request: Request) -> PlainTextResponse:
            self.taken.append(len(await request.body()))
            return PlainTextResponse(str(self.taken[-1]))

        routes = [Route("/take", take, methods=["POST"]), Route("/", lambda _: PlainTextResponse("here"))]
        self.app = AccessControl(Starlette(routes=routes), policy)
        self.listener = listen("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.server = WebServer(self.app, self.listener, policy.limits, certificate)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"

    def connect(self, send: bytes = b"") -> socket.socket:
        """A connection on which ``send`` was sent."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        made.sendall(send)
        return made

    def answer(self, send: bytes) -> bytes:
        """All that comes until the server closes."""
        with self.connect(send) as made:
            return said(made)


def said(made: socket.socket) -> bytes:
    """All that comes until the server closes."""
    came = bytearray()
    try:
        while part := made.recv(65_536):
            came += part
    except ConnectionResetError:
        pass
    return bytes(came)


@contextmanager
def serving(
    limits: Limits | None = None, certificate: Certificate | None = None, token: str | None = None
) -> Iterator[Served]:
    policy = Policy(entrances={"/take": Entrance(TAKES)}, limits=limits or Limits(), token=token)
    one = Served(policy, certificate)
    with served(one.server):
        yield one


def test_a_proper_request_is_answered_packed_or_not_and_a_connection_serves_many() -> None:
    with serving() as one, httpx.Client(base_url=one.url, headers={"content-type": JSON}) as client:
        for body in (b"{}", b"x" * 1_000_000):
            assert client.post("/take", content=body).text == str(len(body))
            packed = client.post("/take", content=gzip.compress(body), headers={"content-encoding": "gzip"})
            assert packed.text == str(len(body))
        assert client.get("/", headers={"content-type": ""}).text == "here"
        assert one.app.bytes_in_flight == (0, 1_000_000)
        assert "access-control-allow-origin" not in client.get("/").headers


def test_what_is_refused_is_answered_in_full_even_while_its_body_comes() -> None:
    with serving(Limits(body_bytes=300_000), token="t") as one:
        long = b"x" * 200_000
        assert httpx.post(f"{one.url}/take", content=long, headers={"content-type": JSON}).status_code == 401
        with httpx.Client(headers={"authorization": "Bearer t"}) as client:
            for headers, content, status in (
                ({"content-type": "text/plain"}, long, 415),
                ({}, long, 415),
                ({"content-type": JSON}, long * 2, 413),
                ({"content-type": JSON, "content-encoding": "br"}, long, 415),
                ({"content-type": JSON, "content-encoding": "gzip"}, long, 400),
                ({"content-type": JSON, "content-encoding": "gzip"}, gzip.compress(long * 2), 413),
                ({"content-type": JSON, "host": "evil.example"}, long, 421),
                ({"content-type": JSON, "host": "[::1"}, long, 400),
                ({"content-type": JSON, "origin": "https://evil.example"}, long, 403),
            ):
                assert client.post(f"{one.url}/take", content=content, headers=headers).status_code == status
            assert client.post(f"{one.url}/", content=b"{}", headers={"content-type": JSON}).status_code == 413
        assert one.taken == [] and one.app.bytes_in_flight[0] == 0


def test_headers_a_body_and_an_idle_connection_have_their_time() -> None:
    limits = Limits(header_seconds=0.2, body_seconds=0.2, idle_seconds=0.2, linger_seconds=0.2)
    with serving(limits) as one:
        assert one.answer(b"").startswith(b"HTTP/1.1 408")
        assert one.answer(b"GET / HT").startswith(b"HTTP/1.1 408")
        assert one.answer(HEAD + b"Content-Length: 9\r\n\r\nx").startswith(b"HTTP/1.1 408")
        assert one.answer(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n").startswith(b"HTTP/1.1 408")
        whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert one.answer(whole).endswith(b"here")
        # a refused body that never ends
        assert one.answer(HEAD.replace(b"/json", b"/x") + b"Content-Length: 9\r\n\r\nx").startswith(b"HTTP/1.1 415")
        wait_until(lambda: not len(one.server.connections or ()), "every connection to be closed")


def test_a_header_that_drips_is_cut_off_all_the_same() -> None:
    with serving(Limits(header_seconds=0.5)) as one, one.connect(b"GET / HTTP/1.1\r\n") as slow:
        slow.settimeout(0.05)

        def cut() -> bool:
            try:
                slow.sendall(b"a: b\r\n")
                return bool(slow.recv(1)) or True
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(cut, "the connection to be cut off")


def test_half_bodies_hold_no_more_than_their_share_and_keep_nobody_out() -> None:
    limits = Limits(body_bytes=200_000, bytes_in_flight=1_000_000)
    with serving(limits) as one, ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(one.connect(HEAD + b"Content-Length: 190000\r\n\r\n" + b"x" * 180_000))
        wait_until(lambda: one.app.bytes_in_flight[0] > 500_000, "the bodies to come")
        body = b"x" * 150_000
        for _ in range(5):
            answer = httpx.post(f"{one.url}/take", content=body, headers={"content-type": JSON}, timeout=30)
            assert answer.status_code == 200
        assert one.app.bytes_in_flight[1] <= 1_000_000


def test_idle_connections_keep_nobody_out() -> None:
    limits = Limits(connections=40, unknown_peer_connections=30, reserved_connections=10)
    with serving(limits) as one, ExitStack() as stack:
        for number in range(200):
            stack.enter_context(one.connect(b"GET / HT" if number % 2 else b""))
            if number % 50 == 0:
                assert httpx.get(one.url, timeout=30).text == "here"
        assert httpx.get(one.url, timeout=30).text == "here"
        assert one.server.connections is not None and len(one.server.connections) <= 40


def test_a_listener_of_few_connections_keeps_most_of_them_for_newcomers() -> None:
    with serving(Limits(connections=8)) as one:
        assert b"200 OK" in one.answer(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")


def test_where_every_connection_is_at_work_the_next_is_told_to_come_again() -> None:
    limits = Limits(connections=3, unknown_peer_connections=3, reserved_connections=0)
    with serving(limits) as one, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(one.connect(HEAD + b"Content-Length: 9\r\n\r\nx"))
        wait_until(lambda: one.app.bytes_in_flight[0] == 3, "the bodies to come")
        assert one.answer(b"").startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /" + b"a" * 400_000,
    ],
)
def test_what_is_no_request_is_bad_and_nothing_else(sent: bytes) -> None:
    with serving(Limits(idle_seconds=0.2)) as one:
        assert one.answer(sent).startswith(b"HTTP/1.1 400")
        assert httpx.get(one.url).text == "here"


def test_over_tls_a_handshake_that_is_not_gone_on_with_is_cut_off(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    certificate = Certificate(certificates.certificate, certificates.key)
    limits = Limits(header_seconds=1.0, connections=20, unknown_peer_connections=10, reserved_connections=10)
    trusted = ssl.create_default_context(cafile=str(certificates.ca))
    with serving(limits, certificate) as one, ExitStack() as stack:
        silent = [stack.enter_context(one.connect()) for _ in range(30)]
        assert httpx.get(one.url, verify=trusted, timeout=30).text == "here"
        assert all(said(made) == b"" for made in silent)


def test_a_certificate_of_no_use_and_a_port_that_is_taken_are_the_users(tmp_path: Path) -> None:
    with serving() as one:
        with pytest.raises(UserError, match="cannot listen"):
            listen("127.0.0.1", one.port)
        with pytest.raises(UserError, match="certificate"):
            WebServer(one.app, one.listener, Limits(), Certificate(tmp_path / "no", tmp_path / "key"))


def test_a_server_at_rest_does_not_look_whether_it_shall_end_and_ends_when_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lake.web.server._TICK_SECONDS", 3_600.0)
    with serving() as one:
        assert httpx.get(one.url + "/").text == "here"
        one.server.should_exit = True  # from another thread than its own
        wait_until(lambda: one.listener.fileno() == -1, "the listener is closed")


_UNTIL_A_SIGNAL = """
import lake.web.server
from lake.web.access import AccessControl
from lake.web.policy import Limits, Policy
from lake.web.server import WebServer, listen
from starlette.applications import Starlette

lake.web.server._TICK_SECONDS = 3_600.0
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
WebServer(AccessControl(Starlette(), Policy()), listener, Limits()).run()
"""


def test_a_signal_ends_a_server_at_rest() -> None:
    with subprocess.Popen([sys.executable, "-c", _UNTIL_A_SIGNAL], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert httpx.get(f"http://127.0.0.1:{int(process.stdout.readline())}/").status_code == 404  # it serves
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)
