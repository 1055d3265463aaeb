"""OTLP/gRPC: the TraceService, its token checked before a message is read. Others are UNIMPLEMENTED by gRPC itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import grpc

from collectors.receive.handler import RETRY_SECONDS, RequestHandler
from collectors.receive.settings import ReceiveSettings
from collectors.receive.status import Code, encoded
from collectors.receive.web import success
from lake.secret import bears
from lake.web.calls import Calls, Reading, TooManyCalls
from lake.web.connections import Connection

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
_CODES = {code.value[0]: code for code in grpc.StatusCode}
#: Calls of one connection at once.
STREAMS = 32


def service(
    handler: RequestHandler, settings: ReceiveSettings, token: str | None, place_of: Callable[[str], Connection | None]
) -> Any:
    """The service. Its requests stay bytes: they are parsed off the event loop, and a malformed one is kept.

    To gRPC its method is a stream of requests: of a unary one it would read the message before anybody could look at
    the token. On the wire both are the same. ``place_of`` finds the connection of what gRPC calls a peer.
    """
    calls = Calls(settings.max_pending)
    reading = Reading(max(8, settings.max_pending_bytes // settings.max_request_bytes))

    async def message(connection: Connection, context: Any) -> bytes:
        try:
            async with reading.turn(connection, settings.body_seconds):
                # Not from ``requests``: a generator that is left halfway keeps its message until cycles are sought.
                read = await context.read()
        except TimeoutError:
            await _refuse(context, Code.UNAVAILABLE, "the message did not come in time", RETRY_SECONDS)
        if not isinstance(read, bytes):
            await _refuse(context, Code.INVALID_ARGUMENT, "a request is one message")
        return read

    async def export(_: Any, context: Any) -> bytes:
        try:
            return await answered(context)
        except grpc.aio.InternalError:  # nobody is there to be told: what strangers leave is no reason to fill a log
            raise asyncio.CancelledError from None

    async def answered(context: Any) -> bytes:
        connection = place_of(context.peer())
        if connection is None:
            await _refuse(context, Code.UNAVAILABLE, "the connection has ended", RETRY_SECONDS)
        told = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        if token is not None:
            if not bears(told, token):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is missing or wrong")
            connection.proven()
        try:
            with calls.place(connection):
                read = await message(connection, context)
                connection.proven()
                with calls.answering(connection):
                    answer = await handler.hand_in("protobuf", read, connection.peer)
        except TooManyCalls:
            await _refuse(context, Code.UNAVAILABLE, "too many calls are open", RETRY_SECONDS)
        if answer.code is not Code.OK:
            await _refuse(context, answer.code, answer.message, answer.retry_seconds)
        response: bytes = success(answer).SerializeToString()
        return response

    return grpc.method_handlers_generic_handler(_SERVICE, {"Export": grpc.stream_unary_rpc_method_handler(export)})


async def _refuse(context: Any, code: Code, message: str, retry_seconds: int | None = None) -> NoReturn:
    details = (("grpc-status-details-bin", encoded(code, message, retry_seconds)),)
    await context.abort(_CODES[int(code)], message, trailing_metadata=details)
    raise AssertionError("abort raises")
