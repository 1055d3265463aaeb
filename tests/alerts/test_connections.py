"""The HTTP that notifications go by, against servers that answer in every way."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from alerts.notify.connections import Connections, NoAnswer, Response
from alerts.notify.notifiers.base import Request
from alerts.notify.target import Target
from tests.support.certificates import make_certificates

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of ``answers``, the last for ever; None closes without one."""

    def __init__(self, *answers: bytes | None, close: bool = False) -> None:
        self.answers, self.close = list(answers), close
        self.connections, self.requests = 0, list[bytes]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(one[15:]) for one in head.split(b"\r\n") if one.startswith(b"content-length:"))
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
                if self.close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def running(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    one = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield one.sockets[0].getsockname()[1]
    finally:
        one.close()


async def post(connections: Connections, port: int, url: str = "http://example.org:{}/x?y=1") -> Response:
    request = Request(Target.of(url.format(port)), b'{"a": 1}', {"Content-Type": "application/json"})
    return await connections.post(request, "127.0.0.1")


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    one = Connections(httpx.create_ssl_context(trust_env=False))
    yield one
    one.close()


async def test_requests_share_a_connection_and_go_to_the_address_under_the_url_s_name(connections: Connections) -> None:
    server = Server(OK)
    async with running(server) as port:
        for _ in range(3):
            assert (await post(connections, port)).status == 200
        assert (await post(connections, port, "http://ann:p%40ss@example.org:{}/")).status == 200
    assert server.connections == 1
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "post /x?y=1 http/1.1"
    wanted = {"user-agent: sojourn", "content-type: application/json", f"host: example.org:{port}", "content-length: 8"}
    assert {*lines[1:]} == wanted
    assert body == b'{"a": 1}'
    assert b"authorization: Basic YW5uOnBAc3M=" in server.requests[3]


async def test_a_connection_that_was_closed_while_it_rested_costs_no_attempt(connections: Connections) -> None:
    server = Server(OK, None, OK)
    async with running(server) as port:
        assert [(await post(connections, port)).status for _ in range(2)] == [200, 200]
    assert (server.connections, len(server.requests)) == (2, 3)
    closing = Server(OK, close=True)
    async with running(closing) as port:
        assert [(await post(connections, port)).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n", 503),
        (b"HTTP/1.1 307 There\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n", 307),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n\r\n", 204),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 200),  # and no body ever
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n" + b"x" * 1_000_000, 200),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnonsense", 200),
    ],
)
async def test_the_head_of_an_answer_is_the_answer(connections: Connections, answer: bytes, status: int) -> None:
    server = Server(answer)
    async with running(server) as port:
        found = [await post(connections, port) for _ in range(2)]
    assert [one.status for one in found] == [status] * 2
    assert found[0].headers.get("retry-after") == ("7" if status == 503 else None)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 abc\r\n\r\n",
    ],
)
async def test_what_is_no_answer_is_an_error(connections: Connections, answer: bytes | None) -> None:
    async with running(Server(answer, close=True)) as port:
        with pytest.raises(NoAnswer):
            await post(connections, port)


async def test_a_request_that_is_cut_off_leaves_nothing_behind(connections: Connections) -> None:
    """Whenever it is: each of the later ones is answered."""
    server = Server(OK)
    silent = Server(b"HTTP/1.1 ")
    async with running(server) as port, running(silent) as mute:
        for number in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.002 * number):
                    await post(connections, mute)
        for number in range(20):
            try:
                async with asyncio.timeout(0.0005 * number):
                    await post(connections, port)
            except TimeoutError:
                continue
        assert [(await post(connections, port)).status for _ in range(5)] == [200] * 5


async def test_a_server_s_certificate_is_held_against_the_url_s_name(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    trusting = ssl.create_default_context(cafile=str(certificates.ca))
    connections = Connections(trusting)
    async with running(Server(OK), context) as port:
        assert (await post(connections, port, "https://localhost:{}/")).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await post(connections, port, "https://example.org:{}/")
        with pytest.raises(ssl.SSLCertVerificationError):
            await post(Connections(httpx.create_ssl_context(trust_env=False)), port, "https://localhost:{}/")
    connections.close()
