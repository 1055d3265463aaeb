"""gRPC behind the relay: who is connected is bounded for each peer, and whoever is known has a place."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from lake.web.policy import Limits
from lake.web.relay import Relay
from lake.web.server import listen
from tests.support.certificates import make_certificates
from tests.support.http2 import PREFACE
from tests.support.waiting import PATIENCE, wait_until

SECONDS = 20.0 * PATIENCE
METHOD = "/test.Service/Echo"
LIMITS = Limits(connections=40, unknown_peer_connections=10, reserved_connections=10, header_seconds=SECONDS)


class Behind:
    """A gRPC server behind a relay, that says again what it is told; a peer is known once it has said ``known``."""

    def __init__(self, limits: Limits, certificate: tuple[bytes, bytes] | None = None) -> None:
        self.listener = listen("127.0.0.1", 0)
        self.port: int = self.listener.getsockname()[1]
        self.relay = Relay(self.listener, limits, tls=certificate is not None)
        self.strangers = 0
        self._certificate = certificate
        self._ready = threading.Event()
        self._ending: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _echo(self, request: bytes, context: Any) -> bytes:
        place = self.relay.place(context.peer())
        if place is None:
            self.strangers += 1
        elif request == b"known":
            place.proven()
        return request

    async def _serve(self) -> None:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        methods = {"Echo": grpc.unary_unary_rpc_method_handler(self._echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", methods),))
        if self._certificate is None:
            server.add_insecure_port(self.relay.address)
        else:
            server.add_secure_port(self.relay.address, grpc.ssl_server_credentials([self._certificate]))
        await server.start()
        self.relay.start()
        self._ending = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._ending[1].wait()
        await server.stop(0)
        await self.relay.close()

    def connect(self, source: str = "127.0.0.1", send: bytes = b"") -> socket.socket:
        """A connection from ``source``; all of 127.0.0.0/8 is this machine, and each address a peer of its own."""
        made = socket.create_connection(("127.0.0.1", self.port), SECONDS, source_address=(source, 0))
        made.sendall(send)
        return made

    def greeted(self, source: str) -> bool:
        """Whether a connection from ``source`` is let in: the server greets it."""
        with self.connect(source) as made:
            try:
                made.sendall(PREFACE)
                return bool(made.recv(1))
            except ConnectionError:
                return False

    def __enter__(self) -> Behind:
        self._thread.start()
        assert self._ready.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._ending is not None
        loop, event = self._ending
        loop.call_soon_threadsafe(event.set)
        self._thread.join(SECONDS)


def echoed(channel: grpc.Channel, sent: bytes) -> bytes:
    answer: bytes = channel.unary_unary(METHOD)(sent, timeout=SECONDS)
    return answer


@contextmanager
def channel_to(behind: Behind) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{behind.port}", options=options) as channel:
        yield channel


def test_calls_come_through_both_ways_whatever_their_length() -> None:
    with Behind(LIMITS) as behind, channel_to(behind) as channel:
        for length in (0, 1, 100_000, 20_000_000):
            assert len(echoed(channel, b"x" * length)) == length
        asked = [channel.unary_unary(METHOD).future(bytes([number]) * 70_000) for number in range(50)]
        assert [one.result(SECONDS)[0] for one in asked] == list(range(50))
        assert behind.strangers == 0 and len(behind.relay.connections) == 1
    assert not Path(behind.relay.address.removeprefix("unix:")).parent.exists()


def test_over_tls_too(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    pair = (made.key.read_bytes(), made.certificate.read_bytes())
    with Behind(LIMITS, pair) as behind:
        credentials = grpc.ssl_channel_credentials(made.ca.read_bytes())
        with grpc.secure_channel(f"localhost:{behind.port}", credentials) as channel:
            assert echoed(channel, b"sealed") == b"sealed"
        with behind.connect(send=PREFACE) as plain:
            assert plain.recv(1) == b""
        context = ssl.create_default_context(cafile=str(made.ca))
        context.set_alpn_protocols(["h2"])
        with behind.connect() as raw, context.wrap_socket(raw, server_hostname="localhost") as sealed:
            sealed.sendall(PREFACE)
            assert sealed.recv(1)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.1\r\n", b"\x16\x03\x01", b"\x00" * 100_000])
def test_what_does_not_begin_as_http_2_never_reaches_the_server(said: bytes) -> None:
    with Behind(LIMITS) as behind, behind.connect() as made:
        try:
            made.sendall(said)
            assert made.recv(1) == b""
        except ConnectionError:
            pass


def test_who_says_nothing_or_half_a_greeting_is_hung_up_on() -> None:
    with Behind(Limits(header_seconds=0.2)) as behind:
        for said in (b"", PREFACE[:10]):
            with behind.connect(send=said) as made:
                assert made.recv(1) == b""
        wait_until(lambda: len(behind.relay.connections) == 0, "both places to be free")


def test_no_peer_takes_the_places_of_others_and_known_ones_have_a_reserve() -> None:
    with ExitStack() as stack:
        behind = stack.enter_context(Behind(LIMITS))
        with channel_to(behind) as channel:
            assert echoed(channel, b"known") == b"known"
        for peer in range(2, 8):
            for number in range(50):
                made = stack.enter_context(behind.connect(f"127.0.0.{peer}"))
                if number % 2:
                    made.sendall(PREFACE)
        assert behind.greeted("127.0.0.9")  # the last to come: those who wait the longest make room for it
        assert len(behind.relay.connections) <= 31
        with channel_to(behind) as channel:
            assert echoed(channel, b"in the reserve") == b"in the reserve"


def test_connections_at_work_are_not_closed_and_unknown_peers_then_wait() -> None:
    with ExitStack() as stack:
        behind = stack.enter_context(Behind(LIMITS))
        made = [stack.enter_context(behind.connect("127.0.0.2", PREFACE)) for _ in range(10)]
        for one in made:
            assert one.recv(1)
        for place in list(behind.relay._places.values()):
            place.works()
        assert not behind.greeted("127.0.0.2") and behind.greeted("127.0.0.3")


def test_who_comes_to_the_server_by_itself_is_nobody() -> None:
    with Behind(LIMITS) as behind, grpc.insecure_channel(behind.relay.address) as channel:
        assert echoed(channel, b"x") == b"x"
        assert behind.strangers == 1
