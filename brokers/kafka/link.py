"""One connection to one broker: bytes out, bytes in, in order, each with a deadline. Blocks: use it in a thread."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from contextlib import suppress

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.kafka.sasl import AUTHENTICATE, Refused, authenticate_request, read_authenticate, talk
from brokers.kafka.settings import KafkaCluster
from brokers.kafka.wire.cluster import Node, api_versions_request, read_api_versions
from brokers.kafka.wire.codec import END, Reader, Request
from lake.errors import UserError

_HANDSHAKE = 17
_UNSUPPORTED_MECHANISM = 33
_LARGEST_ANSWER = 512 << 20
_ROOM = 1 << 20
_CLIENT = b"sojourn"
#: Requests before the versions are agreed have the old header, and so do their answers.
_OLD_HEADERS = {18, 17}


class Link:
    """An open connection; whoever gets ConnectionLost from it closes it and opens another."""

    def __init__(self, broker: KafkaCluster, node: Node, password: str | None) -> None:
        self._broker = broker
        self.where = f"{node.host}:{node.port}"
        self._number = 0
        self._asked: deque[tuple[int, bool]] = deque()
        self._expires = float("inf")
        self._timeout = broker.timeout_seconds
        self._socket = self._connect(node)
        self._answered = 0
        self.versions: dict[int, tuple[int, int]] = {}
        try:
            self.versions = read_api_versions(self.ask(api_versions_request()))
            if broker.user is not None and password is not None:
                self._authenticate(broker.user, password)
        except BaseException:
            self.close()
            raise

    def _connect(self, node: Node) -> socket.socket:
        try:
            raw = socket.create_connection(node, self._timeout)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = self._broker.tls.context()
            return raw if context is None else _encrypted(raw, context, self._broker.server_name or node.host)
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"the certificate of broker {self._broker.name!r} at {self.where} is not trusted: "
                f"{error.verify_message}",
                "set tls.ca to its authority",
            ) from None
        except OSError as error:
            raise self._lost(str(error.strerror or error)) from None

    @property
    def expired(self) -> bool:
        """Whether the broker is about to end this connection because its credentials are to be shown again."""
        return time.monotonic() > self._expires

    @property
    def waiting(self) -> int:
        """How many requests are not answered yet."""
        return len(self._asked)

    def _authenticate(self, user: str, password: str) -> None:
        name = self._broker.mechanism.encode()
        version = min(2, self.versions.get(AUTHENTICATE, (0, 0))[1])
        answer = self.ask(Request(_HANDSHAKE, 1, struct.pack(">h", len(name)) + name))
        if answer.short() == _UNSUPPORTED_MECHANISM:
            known = ", ".join(answer.take(answer.short()).decode() for _ in range(answer.integer()))
            raise UserError(
                f"broker {self._broker.name!r} does not take {self._broker.mechanism}",
                f"set mechanism to one of {known}",
            )
        conversation = talk(self._broker.mechanism, user, password)
        try:
            message = next(conversation)
            while True:
                answer = self.ask(authenticate_request(message, version))
                error, reason, said, lifetime = read_authenticate(answer, version)
                if error:
                    raise self._refused(reason)
                if lifetime > 0:
                    self._expires = time.monotonic() + 0.8 * lifetime / 1000
                message = conversation.send(said)
        except StopIteration:
            return
        except (Refused, ValueError) as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> CredentialsRefused:
        return CredentialsRefused(
            f"broker {self._broker.name!r} at {self.where} refuses the credentials: {why or 'it does not say why'}",
            "check user, password and mechanism in [[collect.brokers]]",
        )

    def _lost(self, why: str) -> ConnectionLost:
        return ConnectionLost(f"broker {self._broker.name!r} at {self.where} cannot be reached: {why}")

    def ask(self, request: Request) -> Reader:
        """The answer; nothing else may be under way."""
        self.send(request)
        return self.receive()

    def send(self, request: Request) -> None:
        """Send a request; its answer comes by :meth:`receive`, in the order of the requests."""
        self._number += 1
        old = request.api in _OLD_HEADERS or (request.api == AUTHENTICATE and request.version < 2)
        head = struct.pack(">hhih", request.api, request.version, self._number, len(_CLIENT)) + _CLIENT
        head += b"" if old else END
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(struct.pack(">i", len(head) + len(request.body)) + head + request.body)
        except OSError as error:
            raise self._lost(str(error.strerror or error)) from None
        self._asked.append((self._number, old))

    def receive(self) -> Reader:
        """The answer to the oldest request that is under way."""
        number, old = self._asked.popleft()
        deadline = time.monotonic() + self._timeout
        (length,) = struct.unpack(">i", self._read(4, deadline))
        if not 4 <= length <= _LARGEST_ANSWER:
            raise self._lost("it does not speak Kafka's protocol (or TLS is wanted)")
        answer = Reader(self._read(length, deadline))
        if answer.integer() != number:
            raise self._lost("its answers are out of order")
        if not old:
            answer.tags()
        self._answered += 1
        return answer

    def _read(self, length: int, deadline: float) -> bytes:
        # What is there is taken, not what a length promises: a TLS alert reads like one of 350 MB.
        found = bytearray(min(length, _ROOM))
        have = 0
        try:
            while have < length:
                if have == len(found):
                    found.extend(bytes(min(length - have, have)))
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                with memoryview(found) as view:
                    got = self._socket.recv_into(view[have:])
                if not got:
                    raise self._lost(f"it closed the connection{self._hint()}")
                have += got
        except TimeoutError:
            raise self._lost(f"no answer within {self._timeout:g} s") from None
        except OSError as error:
            raise self._lost(str(error.strerror or error)) from None
        return bytes(found)

    def _hint(self) -> str:
        """What may be wrong where a broker ends a connection without a word."""
        if not self.versions:
            return " (does it ask for TLS?)"
        return "" if self._broker.user or self._answered > 1 else " (does it ask for credentials?)"

    def close(self) -> None:
        """Disconnect."""
        with suppress(OSError):
            self._socket.close()


def _encrypted(raw: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(raw, server_hostname=host)
    except BaseException:
        raw.close()
        raise
