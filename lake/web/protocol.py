"""One HTTP connection: uvicorn's, with a time for its headers, between requests, and after a refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lake.web.access import CONNECTION
from lake.web.connections import Connection
from lake.web.policy import Limits

_UPGRADED = "websocket"
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_BAD = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Http(H11Protocol):
    """A connection that holds ``place``. Its state is one of: headers, work, rest (of a refused body), idle, closing,
    websocket."""

    def __init__(self, place: Connection, limits: Limits, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn, app_state={CONNECTION: place})
        self._place = place
        self._limits = limits
        self._state = ""
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the headers."""
        self._place.drop = transport.abort
        super().connection_made(transport)
        self._enter("headers", self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._place.leave()
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; the time for the headers runs on whatever comes, until they are whole."""
        super().data_received(data)
        self._look(came=True)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """A websocket's from now on, it is at work as long as it lasts: pings tell whether the peer is still there."""
        self._stop()
        self._state = _UPGRADED
        self._place.works()
        super().handle_websocket_upgrade(event)
        upgraded: Any = self.transport.get_protocol()
        if not upgraded.handshake_initiated:  # headers that it does not read: it would wait for others
            self.transport.write(_BAD)
            self.transport.close()
        lost = upgraded.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._place.leave()
            lost(exc)

        upgraded.connection_lost = connection_lost

    def send_400_response(self, msg: str) -> None:
        """What comes is no HTTP: say so if nothing was said yet, and let nobody answer what came before it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, or read away what is left of this one."""
        super().on_response_complete()
        self._look(came=False)

    def pause_writing(self) -> None:
        """The peer does not take its answer: it has as long as for a body."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(self._limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self, came: bool) -> None:
        """Enter the state that uvicorn's is in now; one that lasts keeps its time."""
        if self._state == _UPGRADED:
            return
        if self.transport.is_closing():
            if self._state != "closing":
                self._enter("closing", self._limits.linger_seconds)
        elif self.cycle is not None and not self.cycle.response_complete:
            if self._state != "work":
                self._stop()
                self._state = "work"
                self._place.works()
        elif self.conn.their_state is h11.SEND_BODY:
            if self._state != "rest":
                self._enter("rest", self._limits.linger_seconds)
        elif came and self._state != "headers":
            self._enter("headers", self._limits.header_seconds)
        elif not came and self._state != "idle":
            self._enter("idle", self._limits.idle_seconds)

    def _enter(self, state: str, seconds: float) -> None:
        self._stop()
        self._state = state
        self._place.waits()
        self._timer = self.loop.call_later(seconds, self._over)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        """The time of the state is over."""
        self._timer = None
        if self._state == "closing":
            self.transport.abort()
            return
        if self._state == "headers":
            self.transport.write(_LATE)
        self.transport.close()
        self._enter("closing", self._limits.linger_seconds)
