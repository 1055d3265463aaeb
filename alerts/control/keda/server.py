"""The server: KEDA's four calls behind access control that gRPC has here, on an event loop and thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from alerts.control.advisor import Capacity
from alerts.control.keda.answers import METRIC, Refused, activity, advised, metrics, spec
from alerts.control.keda.messages import SERVICE, GetMetricsRequest, ScaledObjectRef
from lake.errors import UserError
from lake.secret import bears, is_secret
from lake.web.calls import Calls, Reading, TooManyCalls, options
from lake.web.connections import Connection
from lake.web.policy import Limits
from lake.web.relay import Relay

log = logging.getLogger(__name__)

#: Calls at once, of one connection – KEDA has one for all that it scales –, and bytes of one question.
MOST_CALLS, MOST_STREAMS, MOST_BYTES = 1024, 512, 16 * 1024
READ_SECONDS = 5.0
#: How often what a stream tells is looked at: the advisor looks every five seconds.
LOOK_SECONDS = 1.0
_START_SECONDS, _GRACE_SECONDS = 10.0, 1.0

Ask = Callable[[], Sequence[Capacity]]


@contextmanager
def serving(ask: Ask, listener: socket.socket, token: str | None) -> Iterator[None]:
    """Serve at ``listener``, which is closed at the end; ``ask`` tells what is advised now.

    With a ``token`` each call brings it as a bearer token, or as its trigger's metadata ``tokenFromEnv``: KEDA sends
    no header of ours.
    """
    ready, trouble, loop = threading.Event(), [], asyncio.new_event_loop()
    closing = asyncio.Event()

    async def run() -> None:
        relay = Relay(listener, Limits(), tls=False)
        try:
            server = grpc.aio.server(
                options=options(relay.limits, message_bytes=MOST_BYTES, streams=MOST_STREAMS),
                maximum_concurrent_rpcs=2 * MOST_CALLS,
            )
            server.add_generic_rpc_handlers((Service(ask, token, relay.place).handler(),))
            server.add_insecure_port(relay.address)
            await server.start()
            relay.start()
            ready.set()
            await closing.wait()
            await server.stop(_GRACE_SECONDS)
        finally:
            await relay.close()

    def main() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(run())
        except Exception as error:
            trouble.append(error)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=main, name="keda", daemon=True)
    thread.start()
    if not ready.wait(_START_SECONDS) or trouble:
        raise UserError(f"KEDA's external scaler did not start: {trouble or 'see the log'}", "set another keda_port")
    try:
        yield
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(closing.set)
        thread.join(_GRACE_SECONDS + 5.0)


class Service:
    """The calls. Each is a stream of requests to gRPC, so that the connection is known before a message is read."""

    def __init__(self, ask: Ask, token: str | None, place_of: Callable[[str], Connection | None]) -> None:
        self._ask, self._token, self._place_of = ask, token, place_of
        self._calls, self._reading = Calls(MOST_CALLS), Reading(64)

    def handler(self) -> Any:
        """The service; StreamMetricSpec is UNIMPLEMENTED, upon which KEDA asks GetMetricSpec."""
        unary, stream = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "IsActive": unary(self._unary(lambda ref: activity(self._advised(ref)))),
                "StreamIsActive": stream(self._stream),
                "GetMetricSpec": unary(self._unary(lambda _: spec())),
                "GetMetrics": unary(self._unary(self._metrics, GetMetricsRequest)),
            },
        )

    def _advised(self, ref: Any) -> int:
        return advised(ref.scalerMetadata, self._ask())

    def _metrics(self, request: Any) -> Any:
        # KEDA takes the trigger's number off the name before it asks.
        if request.metricName not in ("", METRIC):
            raise Refused("INVALID_ARGUMENT", f"there is no metric but {METRIC}")
        return metrics(self._advised(request.scaledObjectRef))

    def _unary(self, answer: Callable[[Any], Any], kind: Any = ScaledObjectRef) -> Callable[[Any, Any], Any]:
        async def call(_: Any, context: Any) -> bytes:
            connection = await self._connection(context)
            try:
                with self._calls.place(connection):
                    request = await self._read(connection, context, kind)
                    response: bytes = answer(request).SerializeToString()
                    return response
            except TooManyCalls:
                await _refuse(context, "RESOURCE_EXHAUSTED", "too many calls are open")
            except Refused as refused:
                await _refuse(context, refused.code, str(refused))

        return call

    async def _stream(self, _: Any, context: Any) -> AsyncIterator[bytes]:
        """Tell at once whether consumers are needed, and again whenever that changes; what is unknown tells nothing."""
        connection = await self._connection(context)
        try:
            with self._calls.place(connection):
                ref = await self._read(connection, context, ScaledObjectRef)
                told: bytes | None = None
                while True:
                    try:
                        response: bytes = activity(self._advised(ref)).SerializeToString()
                    except Refused as refused:
                        if refused.code != "UNAVAILABLE":
                            raise
                    else:
                        if response != told:
                            told = response
                            yield response
                    await asyncio.sleep(LOOK_SECONDS)
        except TooManyCalls:
            await _refuse(context, "RESOURCE_EXHAUSTED", "too many calls are open")
        except Refused as refused:
            await _refuse(context, refused.code, str(refused))

    async def _connection(self, context: Any) -> Connection:
        connection = self._place_of(context.peer())
        if connection is None:
            await _refuse(context, "UNAVAILABLE", "the connection has ended")
        return connection

    async def _read(self, connection: Connection, context: Any, kind: Any) -> Any:
        """The one message of a call, once who sent it may ask."""
        brought = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        if self._token is not None and brought and not bears(brought, self._token):
            raise Refused("UNAUTHENTICATED", "the bearer token is wrong")
        try:
            async with self._reading.turn(connection, READ_SECONDS):
                read = await context.read()
        except TimeoutError:
            raise Refused("DEADLINE_EXCEEDED", "the message did not come in time") from None
        try:
            if not isinstance(read, bytes):
                raise DecodeError
            request = kind.FromString(read)
        except DecodeError:
            raise Refused("INVALID_ARGUMENT", "a request is one message of externalscaler.proto") from None
        if self._token is not None and not brought:
            ref = request.scaledObjectRef if kind is GetMetricsRequest else request
            if not is_secret(ref.scalerMetadata.get("tokenFromEnv", "").encode(), self._token):
                raise Refused("UNAUTHENTICATED", "the token is missing or wrong: metadata tokenFromEnv")
        connection.proven()
        return request


async def _refuse(context: Any, code: str, reason: str) -> NoReturn:
    await context.abort(grpc.StatusCode[code], reason)
    raise AssertionError("abort raises")
