"""Access control of a server that accepts by itself and counts nobody: gRPC's.

It accepts in that server's place and carries bytes to and from it, over a Unix socket in a folder of our own, within
the bounds of :mod:`lake.web.connections`. The server is not bothered with a connection before its peer has said
something that begins HTTP/2 or TLS. By what it calls its peer, :meth:`Relay.place` finds the connection.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from lake.web.accept import accept, affordable
from lake.web.connections import Connection, Connections
from lake.web.policy import Limits

#: How a client of HTTP/2 begins (RFC 9113, section 3.4), and one of TLS: with a handshake record (RFC 8446, 5.1).
_PREFACE, _HANDSHAKE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16"
#: Bytes that are read at once: of more, each piece would be memory that the system gives and takes back, page by page
#: (:mod:`collectors.lean`), which costs more than the pieces.
_READ = 60 * 1024
#: File descriptors of one connection: the peer's, ours to the server, and the server's.
_FILES = 3


class Relay:
    """Carries what comes at ``listener`` to the server at :attr:`address`, once :meth:`start` was called.

    It belongs to the event loop in which it was started; :meth:`place` may be called in any thread.
    """

    def __init__(self, listener: socket.socket, limits: Limits, *, tls: bool) -> None:
        most = affordable(limits.connections, _FILES)
        self.limits = replace(
            limits,
            connections=most,
            unknown_peer_connections=min(limits.unknown_peer_connections, max(1, most // 4)),
            reserved_connections=min(limits.reserved_connections, most // 4),
        )
        self.connections = Connections(self.limits, monotonic)
        self._listener = listener
        self._begin_with = _HANDSHAKE if tls else _PREFACE
        self._folder = Path(tempfile.mkdtemp(prefix="sojourn-"))  # which no other user may enter
        self._room = memoryview(bytearray(_READ))
        self._made = 0
        self._places: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Where the server is to listen, in gRPC's words."""
        return f"unix:{self._folder / 'server'}"

    def start(self) -> None:
        """Begin to accept: the server listens."""
        self._keep(asyncio.create_task(accept(self._listener, self.connections, self._begin, _hang_up)))

    def place(self, peer: str) -> Connection | None:
        """The connection that the server calls ``peer``; None where it has ended, or came from elsewhere."""
        return self._places.get(peer)

    async def close(self) -> None:
        """Accept no more, and end what is left."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._listener.close()
        for place in list(self._places.values()):
            place.drop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self, accepted: socket.socket, place: Connection) -> None:
        task = asyncio.create_task(self._carry(accepted, place))
        place.drop = task.cancel
        self._keep(task)

    async def _carry(self, accepted: socket.socket, place: Connection) -> None:
        """Carry one connection, until it ends."""
        loop, name = asyncio.get_running_loop(), ""
        outside, inside = _End(self._room, self._begin_with), _End(self._room)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: outside, accepted)
            async with asyncio.timeout(self.limits.header_seconds):
                if not await outside.begun:
                    return
                made, name = self._dialled(place)
                await loop.create_unix_connection(lambda: inside, sock=made)
            outside.link(inside)
            await asyncio.wait({outside.gone, inside.gone}, return_when=asyncio.FIRST_COMPLETED)
            inside.close()
            outside.close()  # after what the server has said
            await asyncio.wait({outside.gone}, timeout=self.limits.linger_seconds)
        except (OSError, TimeoutError):
            pass
        finally:
            place.leave()
            self._places.pop(name, None)
            accepted.close()
            outside.abort()
            inside.abort()

    def _dialled(self, place: Connection) -> tuple[socket.socket, str]:
        """A connection to the server for ``place``, and how the server will call it. OSError."""
        self._made += 1
        path = self._folder / str(self._made)
        made = socket.socket(socket.AF_UNIX)
        try:
            made.setblocking(False)  # a server that is behind with accepting makes nobody wait
            made.bind(str(path))
            self._places[f"unix:{path}"] = place  # before the server can ask
            made.connect(str(self._folder / "server"))
        except BaseException:
            self._places.pop(f"unix:{path}", None)
            made.close()
            raise
        finally:
            path.unlink(missing_ok=True)
        return made, f"unix:{path}"


class _End(asyncio.BufferedProtocol):
    """One end of a connection that is carried. Where it must ``begin_with`` something, nothing goes on before that.

    ``room`` is what all ends of a loop read into: what came is taken out of it before another reads.
    """

    def __init__(self, room: memoryview, begin_with: bytes = b"") -> None:
        self._begin_with = begin_with
        self._held = b""
        self._room = room
        self._other: _End | None = None
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        #: Whether it has begun as it must, once that is known.
        self.begun: asyncio.Future[bool] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()

    def link(self, other: _End) -> None:
        """Let both give each other what comes."""
        self._other, other._other = other, self
        for one, to in ((self, other), (other, self)):
            to.write(one._held)
            one._held = b""
            if one._transport is not None and not one._transport.is_closing():
                one._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is to be sent, then hang up."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._room[:nbytes])
        if self._other is not None:
            self._other.write(data)
            return
        self._held += data
        wanted = self._begin_with
        if not self._held.startswith(wanted) and not wanted.startswith(self._held):
            self._tell(False)
        elif len(self._held) >= len(wanted):
            assert self._transport is not None
            self._transport.pause_reading()
            self._tell(True)

    def eof_received(self) -> None:
        """It ends: HTTP/2 has no use for half a connection."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._tell(False)
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        self._read_from_other(False)

    def resume_writing(self) -> None:
        self._read_from_other(True)

    def _read_from_other(self, reading: bool) -> None:
        if self._other is not None and (transport := self._other._transport) is not None:
            with suppress(RuntimeError):  # it is being closed
                transport.resume_reading() if reading else transport.pause_reading()

    def _tell(self, begun: bool) -> None:
        if not self.begun.done():
            self.begun.set_result(begun)


def _hang_up(accepted: socket.socket) -> None:
    accepted.close()
