"""OTLP/gRPC: the TraceService, its token checked before a message is read. Others are UNIMPLEMENTED by gRPC itself."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc

from collectors.receive.desk import RETRY_SECONDS, Desk
from collectors.receive.settings import ReceiveSettings
from collectors.receive.status import Code, encoded
from collectors.receive.web import success
from lake.secret import bears

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
_CODES = {code.value[0]: code for code in grpc.StatusCode}
#: How long half a message may hold its place where another sender waits for one.
_STALLED_SECONDS = 1.0


class Reading:
    """The messages that are being read at once, at most ``most``: gRPC keeps what has come of each. Others wait unread.

    Where one waits, the message that has been read the longest gives up its place, once it has had a while.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._since: dict[asyncio.Timeout, float] = {}  # the oldest first
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._since)

    async def begin(self, seconds: float) -> asyncio.Timeout:
        """A time-out to read a message within; TimeoutError where there is no place in ``seconds``."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            while len(self._since) >= self._most:
                oldest, since = next(iter(self._since.items()))
                left = since + _STALLED_SECONDS - loop.time()
                if left <= 0:
                    del self._since[oldest]
                    oldest.reschedule(loop.time())
                    break
                place = loop.create_future()
                self._waiting.append(place)
                await asyncio.wait({place}, timeout=left)
                if not place.done():
                    self._waiting.remove(place)
        waiting = asyncio.timeout(seconds)
        self._since[waiting] = loop.time()
        return waiting

    def end(self, waiting: asyncio.Timeout) -> None:
        """It was read, or will not be."""
        self._since.pop(waiting, None)
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                break


def handler(desk: Desk, settings: ReceiveSettings, token: str | None) -> Any:
    """The service. Its requests stay bytes: they are parsed off the event loop, and a malformed one is kept.

    To gRPC its method is a stream of requests: of a unary one it would read the message before anybody could look at
    the token. On the wire both are the same.
    """
    reading = Reading(max(8, settings.max_pending_bytes // settings.max_request_bytes))

    async def export(_: Any, context: Any) -> bytes:
        told = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        if token is not None and not bears(told, token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is missing or wrong")
        try:
            waiting = await reading.begin(settings.body_seconds)
            try:
                async with waiting:
                    # Not from ``requests``: a generator that is left halfway keeps its message until cycles are sought.
                    read = await context.read()
            finally:
                reading.end(waiting)
        except TimeoutError:
            await _refuse(context, Code.UNAVAILABLE, "the message did not come in time", RETRY_SECONDS)
            raise AssertionError("abort raises") from None
        if not isinstance(read, bytes):
            await _refuse(context, Code.INVALID_ARGUMENT, "a request is one message")
        answer = await desk.hand_in("protobuf", read)
        if answer.code is not Code.OK:
            await _refuse(context, answer.code, answer.message, answer.retry_seconds)
        response: bytes = success(answer).SerializeToString()
        return response

    return grpc.method_handlers_generic_handler(_SERVICE, {"Export": grpc.stream_unary_rpc_method_handler(export)})


def options(settings: ReceiveSettings) -> list[tuple[str, int]]:
    """What one connection, and all of them, may cost."""
    return [
        ("grpc.max_receive_message_length", settings.max_request_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", settings.max_pending),
        ("grpc.max_metadata_size", 8 * 1024),
        ("grpc.absolute_max_metadata_size", 16 * 1024),
        ("grpc.server_handshake_timeout_ms", int(settings.header_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(max(1.0, settings.idle_seconds) * 1000)),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
    ]


async def _refuse(context: Any, code: Code, message: str, retry_seconds: int | None = None) -> None:
    details = (("grpc-status-details-bin", encoded(code, message, retry_seconds)),)
    await context.abort(_CODES[int(code)], message, trailing_metadata=details)
