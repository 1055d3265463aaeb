"""Serving an application behind access control: the listener, the loop that accepts, and the server's life."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn

from lake.errors import UserError
from lake.web.accept import accept, affordable
from lake.web.access import AccessControl
from lake.web.connections import Connection, Connections
from lake.web.policy import Limits
from lake.web.protocol import Http

log = logging.getLogger(__name__)

_BACKLOG = 1024
#: How often a server that nothing happens to wakes: for the date that its answers bear.
_TICK_SECONDS = 1.0
_GRACE_SECONDS = 2
#: Bytes of one message of a websocket's peer.
_MOST_SAID = 1024 * 1024
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a listener shows; PEM files."""

    certificate: Path
    key: Path


def listen(host: str, port: int, fix: str = "set another port; 0 takes any free one") -> socket.socket:
    """A socket that listens at ``host``:``port`` (0: any free port). UserError, with ``fix``, if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UserError(f"cannot listen at {host}:{port}: {reason}", fix) from None
    return listener


class WebServer(uvicorn.Server):
    """Serves ``app`` at ``listener``. UserError where the certificate is of no use.

    With ``websockets`` the application is asked to begin and to end, too, and may speak to upgraded connections.
    ``await server.serve()`` until ``should_exit`` is set; :func:`served` does so in a thread.
    """

    def __init__(
        self,
        app: AccessControl,
        listener: socket.socket,
        limits: Limits,
        certificate: Certificate | None = None,
        *,
        websockets: bool = False,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level=logging.ERROR,  # what a stranger sends is no reason to fill a disk
            access_log=False,
            lifespan="on" if websockets else "off",
            ws="websockets-sansio" if websockets else "none",
            ws_max_size=_MOST_SAID,
            proxy_headers=False,
            server_header=False,
            http=Http,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=int(limits.idle_seconds) + 1,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=None if certificate is None else str(certificate.certificate.expanduser()),
            ssl_keyfile=None if certificate is None else str(certificate.key.expanduser()),
        )
        try:
            config.load()
        except OSError as error:
            raise UserError(f"the certificate cannot be used: {error}", "put right certificate and key") from None
        self._should_exit = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        super().__init__(config)
        self._listener = listener
        connections = affordable(limits.connections)
        # Where there are few, the reserve must not be all of them.
        reserved = min(limits.reserved_connections, connections // 4)
        self._limits = replace(limits, connections=connections, reserved_connections=reserved)
        self.connections: Connections | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        self.connections = Connections(self._limits, loop.time)
        await self.lifespan.startup()
        if self.lifespan.should_exit:  # it cannot begin, and has said why
            self.should_exit = True
            return
        self.servers: list[Any] = [_Acceptor(self, self._listener, self._limits, self.connections)]
        self.started = True

    @property
    def should_exit(self) -> bool:
        """Whether the server shall end; may be set from any thread, and by a signal."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, whether: bool) -> None:
        self._should_exit = whether
        if whether and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Wait until the server shall end. Uvicorn looks ten times a second, which is most of a server at rest."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # each is the first of its second
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _TICK_SECONDS)

    def protocol(self, place: Connection) -> Http:
        """What serves one connection."""
        return Http(place, self._limits, config=self.config, server_state=self.server_state)


class _Acceptor:
    """Accepts, as long as there is a place; what uvicorn closes and waits for like an asyncio.Server."""

    def __init__(self, server: WebServer, listener: socket.socket, limits: Limits, connections: Connections) -> None:
        self._server = server
        self._listener = listener
        self._limits = limits
        self._beginning: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(accept(listener, connections, self._begin, self._refuse))
        self._task.add_done_callback(self._ended)

    def close(self) -> None:
        self._task.cancel()
        for one in self._beginning:
            one.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        await asyncio.wait({self._task, *self._beginning})

    def _begin(self, accepted: socket.socket, place: Connection) -> None:
        task = asyncio.create_task(self._hand_over(accepted, place))
        place.drop = task.cancel

        def ended(task: asyncio.Task[None]) -> None:
            self._beginning.discard(task)
            if task.cancelled():
                place.leave()
                accepted.close()

        self._beginning.add(task)
        task.add_done_callback(ended)

    async def _hand_over(self, accepted: socket.socket, place: Connection) -> None:
        """Hand the connection to its protocol, after TLS's handshake if there is to be one."""
        loop, secure = asyncio.get_running_loop(), self._server.config.ssl
        times: dict[str, Any] = {}
        if secure is not None:
            times = {
                "ssl": secure,
                "ssl_handshake_timeout": self._limits.header_seconds,
                "ssl_shutdown_timeout": self._limits.linger_seconds,
            }
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: self._server.protocol(place), accepted, **times)
        except (OSError, ssl.SSLError, TimeoutError):
            place.leave()
            accepted.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Accepting has ended; a server that does not accept ends, too, and says why."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the server accepts no more", exc_info=error)
            self._server.should_exit = True

    def _refuse(self, accepted: socket.socket) -> None:
        with suppress(OSError), accepted:
            accepted.setblocking(False)
            if self._server.config.ssl is None:
                accepted.send(_FULL)


@contextmanager
def served(server: WebServer, name: str = "web") -> Iterator[None]:
    """``server`` at work in a thread of its own, as long as the context lasts."""
    thread = threading.Thread(target=server.run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_GRACE_SECONDS + 5)
        server._listener.close()
