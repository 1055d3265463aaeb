"""As much of HTTP/2 and gRPC as a sender needs that stops halfway: frames by hand (RFC 9113, section 4)."""

from __future__ import annotations

import selectors
import socket
import struct
import time

DATA, HEADERS, RESET, SETTINGS, PING, WINDOW = 0, 1, 3, 4, 6, 8
_END_HEADERS = 4
_FIRST_WINDOW = 65_535
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def packed(headers: dict[str, str]) -> bytes:
    """``headers`` in HPACK, all of them literals that are not indexed (RFC 7541, section 6.2.2)."""

    def text(value: bytes) -> bytes:
        assert len(value) < 127, "longer ones take more than one byte of length"
        return bytes((len(value),)) + value

    return b"".join(b"\x00" + text(name.encode()) + text(value.encode()) for name, value in headers.items())


class HalfSender:
    """One connection to a gRPC server; it sends what it is told to, as far as the server's windows let it.

    ``source`` is its own address: all of 127.0.0.0/8 is this machine, and each address a peer of its own.
    """

    def __init__(self, port: int, *, seconds: float = 30.0, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), seconds, source_address=(source, 0))
        self._selector = selectors.PollSelector()
        self._selector.register(self.socket, selectors.EVENT_READ)
        self._window, self._first = _FIRST_WINDOW, _FIRST_WINDOW
        self._windows: dict[int, int] = {}
        self._came = bytearray()
        self._next = 1
        self.ended: set[int] = set()
        self.closed = False

    def greet(self) -> None:
        """The preface, and no wish of our own."""
        self._send(PREFACE + frame(SETTINGS, 0, 0))

    def call(self, path: str, **headers: str) -> int:
        """Begin a call; its stream's number."""
        stream, self._next = self._next, self._next + 2
        head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "127.0.0.1"}
        head |= {"te": "trailers", "content-type": "application/grpc"} | headers
        self._windows[stream] = self._first
        self._send(frame(HEADERS, _END_HEADERS, stream, packed(head)))
        return stream

    def begin(self, stream: int, length: int) -> None:
        """Announce a message of ``length`` bytes."""
        self._data(stream, b"\x00" + struct.pack(">I", length))

    def more(self, stream: int, most: int) -> int:
        """Send up to ``most`` bytes of the message; returns how many the windows let through at once."""
        sent = 0
        self.hear()
        while sent < most and not self.closed and stream not in self.ended:
            piece = min(16_384, most - sent, self._window, self._windows[stream])
            if piece <= 0:
                break
            self._data(stream, b"\x00" * piece)
            sent += piece
            self.hear()
        return sent

    def hear(self, seconds: float = 0.0) -> None:
        """Take what the server says; waits for something at most ``seconds``."""
        end = time.monotonic() + seconds
        while not self.closed:
            if not self._selector.select(max(0.0, end - time.monotonic())):
                return
            try:
                came = self.socket.recv(65_536)
            except OSError:
                came = b""
            if not came:
                self.closed = True
                return
            self._came += came
            self._understand()
            end = 0.0

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        self.socket.close()

    def _understand(self) -> None:
        while len(self._came) >= 9 and len(self._came) >= 9 + (length := int.from_bytes(self._came[:3], "big")):
            kind, flags = self._came[3], self._came[4]
            stream = int.from_bytes(self._came[5:9], "big") & 0x7FFFFFFF
            payload = bytes(self._came[9 : 9 + length])
            del self._came[: 9 + length]
            if kind == WINDOW:
                grown = int.from_bytes(payload, "big")
                if stream == 0:
                    self._window += grown
                elif stream in self._windows:
                    self._windows[stream] += grown
            elif kind == SETTINGS and not flags & 1:
                for at in range(0, len(payload), 6):
                    name, value = struct.unpack(">HI", payload[at : at + 6])
                    if name == 4:
                        self._windows = {one: left + value - self._first for one, left in self._windows.items()}
                        self._first = value
                self._send(frame(SETTINGS, 1, 0))
            elif kind == PING and not flags & 1:
                self._send(frame(PING, 1, 0, payload))
            elif kind == RESET or (kind == HEADERS and flags & 1):
                self.ended.add(stream)

    def _data(self, stream: int, payload: bytes) -> None:
        self._window -= len(payload)
        self._windows[stream] -= len(payload)
        self._send(frame(DATA, 0, stream, payload))

    def _send(self, sent: bytes) -> None:
        try:
            self.socket.sendall(sent)
        except OSError:
            self.closed = True
