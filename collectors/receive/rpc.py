"""OTLP/gRPC: the TraceService, its token checked before a message is read. Others are UNIMPLEMENTED by gRPC itself."""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import grpc

from collectors.receive.desk import RETRY_SECONDS, Desk
from collectors.receive.settings import ReceiveSettings
from collectors.receive.status import Code, encoded
from collectors.receive.web import success

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
_CODES = {code.value[0]: code for code in grpc.StatusCode}
#: How long half a message may hold its place where another sender waits for one.
_STALLED_SECONDS = 1.0


class Reading:
    """The messages that are being read at once, at most ``most``: gRPC keeps what has come of each.

    Where all places are taken, the message that has been read the longest gives up its own, once it has had a while.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._since: dict[asyncio.Timeout, float] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, seconds: float) -> asyncio.Timeout | None:
        """A time-out to read a message within; None: there is no place."""
        now = asyncio.get_running_loop().time()
        if len(self._since) >= self._most:
            oldest, since = next(iter(self._since.items()))
            if now - since < _STALLED_SECONDS:
                return None
            del self._since[oldest]
            oldest.reschedule(now)
        waiting = asyncio.timeout(seconds)
        self._since[waiting] = now
        return waiting

    def end(self, waiting: asyncio.Timeout) -> None:
        """It was read, or will not be."""
        self._since.pop(waiting, None)


def handler(desk: Desk, settings: ReceiveSettings, token: str | None) -> Any:
    """The service. Its requests stay bytes: they are parsed off the event loop, and a malformed one is kept.

    To gRPC its method is a stream of requests: of a unary one it would read the message before anybody could look at
    the token. On the wire both are the same.
    """
    expected = None if token is None else f"Bearer {token}".encode()
    reading = Reading(max(4, settings.max_pending_bytes // settings.max_request_bytes))

    async def export(requests: Any, context: Any) -> bytes:
        told = [value for name, value in context.invocation_metadata() or () if name.lower() == "authorization"]
        if expected is not None and not _same(told, expected):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is missing or wrong")
        waiting = reading.begin(settings.body_seconds)
        if waiting is None:
            await _refuse(context, Code.UNAVAILABLE, "too many messages are on their way", RETRY_SECONDS)
            raise AssertionError("abort raises")
        body: bytes | None = None
        try:
            async with waiting:
                body = await anext(aiter(requests), None)
        except TimeoutError:
            await _refuse(context, Code.UNAVAILABLE, "the message did not come in time", RETRY_SECONDS)
        finally:
            reading.end(waiting)
        if body is None:
            await _refuse(context, Code.INVALID_ARGUMENT, "a request is one message")
            raise AssertionError("abort raises")
        answer = await desk.hand_in("protobuf", body)
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
        ("grpc.max_concurrent_streams", 100),
        ("grpc.max_metadata_size", 8 * 1024),
        ("grpc.absolute_max_metadata_size", 16 * 1024),
        ("grpc.server_handshake_timeout_ms", int(settings.header_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(max(1.0, settings.idle_seconds) * 1000)),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.http2.bdp_probe", 0),  # what is not read yet stays within its window of 64 KiB
    ]


async def _refuse(context: Any, code: Code, message: str, retry_seconds: int | None = None) -> None:
    details = (("grpc-status-details-bin", encoded(code, message, retry_seconds)),)
    await context.abort(_CODES[int(code)], message, trailing_metadata=details)


def _same(given: list[Any], expected: bytes) -> bool:
    sent = given[0] if len(given) == 1 else ""
    return hmac.compare_digest(sent if isinstance(sent, bytes) else sent.encode("utf-8", "replace"), expected)
