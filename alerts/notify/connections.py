"""HTTP/1.1 as notifications need it: POST to an address that was checked, the status back, connections kept a while.

A general client's pool costs several times what the request does, and a request that is cancelled at an unlucky moment
may keep its place there for ever: after a few of them a receiver would hear nothing more. Here a connection belongs to
one request at a time, and is kept only if that ended well.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import h11

from alerts.notify.notifiers.base import Request
from alerts.notify.target import Target
from lake.errors import SojournError

#: Connections that rest are kept so many, for so long (seconds): servers close theirs after a minute or so.
MOST_IDLE, IDLE_SECONDS = 4, 30.0
#: What is read of an answer's body so that its connection can be used again (bytes, seconds).
MOST_BODY, BODY_SECONDS = 64 * 1024, 0.25
_CHUNK = 16 * 1024


class NoAnswer(SojournError):
    """The server closed the connection, or said what is no HTTP."""


class _Gone(Exception):
    """The connection had ended before anything came back."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a server answered; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Line:
    """A connection to one server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rests_since: float = field(default_factory=time.monotonic)


Server = tuple[str, str, int, str]


class Connections:
    """The connections to one receiver. Belongs to one event loop."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._idle: dict[Server, list[_Line]] = {}

    async def post(self, request: Request, address: str) -> Response:
        """Send ``request`` to ``address``, and to nothing else. Redirects are answers, proxies are not used.

        OSError where there is no connection, NoAnswer where there is no answer. The caller sets the time limit.
        """
        target, sent = request.target, _written(request)
        server = target.scheme, address, target.port, target.host
        line = self._rested(server)
        if line is not None:
            try:
                return await self._asked(line, server, sent)
            except _Gone:
                pass  # it was closed while it rested: nothing was told
        try:
            return await self._asked(await self._opened(target, address), server, sent)
        except _Gone:
            raise NoAnswer("the connection was closed without an answer") from None

    def close(self) -> None:
        """Close those that rest."""
        for lines in self._idle.values():
            for line in lines:
                line.writer.transport.abort()
        self._idle.clear()

    def _rested(self, server: Server) -> _Line | None:
        lines = self._idle.get(server, [])
        while lines:
            line = lines.pop()
            if time.monotonic() - line.rests_since < IDLE_SECONDS and not line.reader.at_eof():
                return line
            line.writer.transport.abort()
        return None

    async def _opened(self, target: Target, address: str) -> _Line:
        secure = {"ssl": self._tls, "server_hostname": target.host} if target.scheme == "https" else {}
        return _Line(*await asyncio.open_connection(address, target.port, **secure))  # type: ignore[arg-type]

    async def _asked(self, line: _Line, server: Server, sent: list[h11.Event]) -> Response:
        state = h11.Connection(h11.CLIENT)
        try:
            line.writer.write(b"".join(state.send(event) or b"" for event in sent))
            await line.writer.drain()
            answer = await _answer(line, state)
            reusable = await _read_on(line, state)
        except ConnectionError as error:
            line.writer.transport.abort()
            raise _Gone from error
        except BaseException:
            line.writer.transport.abort()
            raise
        if reusable and len(self._idle.setdefault(server, [])) < MOST_IDLE:
            line.rests_since = time.monotonic()
            self._idle[server].append(line)
        else:
            line.writer.transport.abort()
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in answer.headers}
        return Response(answer.status_code, headers)


def _written(request: Request) -> list[h11.Event]:
    target = request.target
    headers = {"user-agent": "Sojourn", **{name.lower(): value for name, value in request.headers.items()}}
    if target.user or target.password:
        pair = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
        headers["authorization"] = f"Basic {pair}"
    headers |= {"host": target.authority, "content-length": str(len(request.body))}
    head = h11.Request(method="POST", target=target.path, headers=list(headers.items()))
    return [head, h11.Data(data=request.body), h11.EndOfMessage()]


async def _answer(line: _Line, state: h11.Connection) -> h11.Response:
    """The head of the answer."""
    heard = False
    while True:
        try:
            event = state.next_event()
        except h11.RemoteProtocolError as error:
            raise NoAnswer(f"the answer is no HTTP: {error}") if heard else _Gone() from error
        if isinstance(event, h11.Response):
            return event
        if event is h11.NEED_DATA:
            chunk = await line.reader.read(_CHUNK)
            if not chunk and not heard:
                raise _Gone
            heard = heard or bool(chunk)
            state.receive_data(chunk)
        elif not isinstance(event, h11.InformationalResponse):
            raise NoAnswer("the connection was closed within the answer")


async def _read_on(line: _Line, state: h11.Connection) -> bool:
    """Read what follows the head, if it is little and comes soon; whether the connection can be used again."""
    left = MOST_BODY
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while left > 0 and not isinstance(event := state.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
                if event is h11.NEED_DATA:
                    chunk = await line.reader.read(_CHUNK)
                    left -= len(chunk)
                    state.receive_data(chunk)
                elif event is h11.PAUSED:
                    return False
    except (TimeoutError, OSError, h11.RemoteProtocolError):
        return False
    return state.our_state is h11.DONE and state.their_state is h11.DONE
