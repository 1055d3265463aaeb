"""The gate before Spark Connect: who has the token may ask, and what asks for more than rows is refused.

The token is looked at before a message is read: a call without it ends at once, whatever it would have sent, and takes
none of the places of those who have it. Each request is then read, checked (:mod:`spark_analytics.connect.allowed`) and
written anew. Answers pass unread, but for settings and for what Spark tells of its errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError
from lake.secret import bears
from spark_analytics.connect.allowed import MOST_BYTES, Known, Look, checked, no_look, read_request
from spark_analytics.connect.own_rows import OwnRows
from spark_analytics.connect.settings import readable_answer
from spark_analytics.connect.times import GRACE_SECONDS, Query, QueryTimes, named

_SERVICE = "spark.connect.SparkConnectService"
#: Calls at once of those who have the token; a query that runs holds one of them.
MOST_CALLS = 64
#: Threads and calls beyond them, to turn away the others.
_TURNED_AWAY = 16
_MOST_OPEN = 1024
#: Messages that are read at once, and seconds that each may take.
_MOST_READ, _READ_SECONDS = 8, 30.0
#: That a query may run.
DEFAULT_SECONDS = 600.0
_MOST_DETAILS = 4096
#: Milliseconds. A connection has 10 s to shake hands, a minute to ask something, and answers a ping within 20 s.
_LIMITS = [
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", 2 * MOST_CALLS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.http2.bdp_probe", 0),  # else a call that nobody has read yet may hold megabytes, and not 64 KiB
    ("grpc.so_reuseport", 0),
]
_SIZES = _LIMITS[:2]

Call = Callable[..., Any]


class Gateway:
    """Listens at ``address`` and asks Spark's own server at ``upstream``; it starts at once, and ends by ``close``.

    ``port`` is where it listens, as the system chose it where ``address`` ends in 0.

    ``names`` are the tables and views that may be read; ``token`` what clients must send, None for nothing;
    ``upstream_token`` what Spark's own server asks for. A query has ``seconds``. ``look`` is a second look at each
    statement and the names that it may use, which raises UserError.
    """

    def __init__(
        self,
        address: str,
        upstream: str,
        names: Collection[str],
        *,
        token: str | None,
        upstream_token: str,
        credentials: grpc.ServerCredentials | None = None,
        seconds: float = DEFAULT_SECONDS,
        look: Look = no_look,
    ) -> None:
        self._known = Known(frozenset(names), look)
        self._sent = (("authorization", f"Bearer {upstream_token}"),)
        self._channel = grpc.insecure_channel(upstream, _SIZES)
        self._places = threading.BoundedSemaphore(MOST_CALLS)
        self._reading = threading.BoundedSemaphore(_MOST_READ)
        interrupt: Call = self._channel.unary_unary(f"/{_SERVICE}/Interrupt")
        self._times = QueryTimes(
            seconds,
            lambda request: interrupt(request.SerializeToString(), metadata=self._sent, timeout=GRACE_SECONDS),
        )
        handlers = {
            "ExecutePlan": self._handler("ExecutePlan", base_pb2.ExecutePlanRequest, many=True),
            "ReattachExecute": self._handler("ReattachExecute", base_pb2.ReattachExecuteRequest, many=True),
            "AnalyzePlan": self._handler("AnalyzePlan", base_pb2.AnalyzePlanRequest),
            "Config": self._handler("Config", base_pb2.ConfigRequest, readable_answer),
            "ArtifactStatus": self._handler("ArtifactStatus", base_pb2.ArtifactStatusesRequest),
            "Interrupt": self._handler("Interrupt", base_pb2.InterruptRequest),
            "ReleaseExecute": self._handler("ReleaseExecute", base_pb2.ReleaseExecuteRequest),
            "ReleaseSession": self._handler("ReleaseSession", base_pb2.ReleaseSessionRequest),
            "FetchErrorDetails": self._handler("FetchErrorDetails", base_pb2.FetchErrorDetailsRequest, _without_traces),
            "CloneSession": self._handler("CloneSession", base_pb2.CloneSessionRequest),
            "GetStatus": self._handler("GetStatus", base_pb2.GetStatusRequest),
            "AddArtifacts": self._upload(),
        }
        self._server = grpc.server(
            ThreadPoolExecutor(MOST_CALLS + _TURNED_AWAY, "gateway"),
            interceptors=[_TokenFirst(token)],
            options=_LIMITS,
            maximum_concurrent_rpcs=_MOST_OPEN,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        if credentials is None:
            self.port: int = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    def close(self, grace_seconds: float = 2.0) -> None:
        """Let running calls end for a moment, then let go of them."""
        self._server.stop(grace_seconds).wait()
        self._times.close()
        self._channel.close()

    def _handler(
        self,
        name: str,
        kind: type[Message],
        edit: Callable[[Any, bytes], bytes] = lambda request, answer: answer,
        *,
        many: bool = False,
    ) -> grpc.RpcMethodHandler:
        """Of a call with one request, and one answer or ``many``.

        To gRPC it is one of a stream of requests: else it would read the message before it asks us.
        """
        path = f"/{_SERVICE}/{name}"
        call: Call = self._channel.unary_stream(path) if many else self._channel.unary_unary(path)

        def handle(parts: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            with _Place(self._places, context):
                try:
                    request = checked(read_request(kind, self._part(parts, context) or b""), self._known)
                except UserError as error:
                    context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
                query = self._query(request)
                left = self._left(query, context)
                try:
                    answers = call(request.SerializeToString(), metadata=self._sent, timeout=left)
                    if many:
                        context.add_callback(answers.cancel)
                        yield from answers
                    else:
                        yield edit(request, answers)
                    self._ended(request)
                except grpc.RpcError as error:
                    if query is not None and self._times.is_over(query):
                        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(self._times.error()))
                    _pass_on(error, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def _part(self, parts: Iterator[bytes], context: grpc.ServicerContext) -> bytes | None:
        """The next message of a call, None at its end. gRPC holds what has come of each: few are read at once."""
        if not self._reading.acquire(timeout=_READ_SECONDS):
            context.abort(grpc.StatusCode.UNAVAILABLE, "others are sending: try again later")
        late = threading.Timer(_READ_SECONDS, context.cancel)
        late.start()
        try:
            return next(parts, None)
        finally:
            late.cancel()
            self._reading.release()

    def _query(self, request: Message) -> Query | None:
        """The query that ``request`` begins, or asks for the rows of."""
        if isinstance(request, base_pb2.ExecutePlanRequest):
            return self._times.begin(request)
        return named(request) if isinstance(request, base_pb2.ReattachExecuteRequest) else None

    def _ended(self, request: Message) -> None:
        """``request`` was answered: see whether a query has ended by that."""
        if isinstance(request, base_pb2.ExecutePlanRequest):
            if not any(option.reattach_options.reattachable for option in request.request_options):
                self._times.end(named(request))
        elif isinstance(request, base_pb2.ReleaseExecuteRequest) and not request.HasField("release_until"):
            self._times.end(named(request))

    def _left(self, query: Query | None, context: grpc.ServicerContext) -> float:
        """Seconds that a call may take: as long as its client waits, and no longer than a query."""
        left = context.time_remaining()
        most = self._times.seconds + GRACE_SECONDS if query is None else self._times.left(query)
        return most if left is None else min(most, left)

    def _upload(self) -> grpc.RpcMethodHandler:
        call: Call = self._channel.stream_unary(f"/{_SERVICE}/AddArtifacts")

        def handle(parts: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            refusals: list[UserError] = []
            rows = OwnRows()

            def passed() -> Iterator[bytes]:
                while (part := self._part(parts, context)) is not None:
                    try:
                        request = checked(read_request(base_pb2.AddArtifactsRequest, part), self._known)
                        rows.check(request)
                    except UserError as error:
                        refusals.append(error)
                        return
                    yield request.SerializeToString()

            with _Place(self._places, context):
                answer = b""
                try:
                    answer = call(passed(), metadata=self._sent, timeout=self._left(None, context))
                except grpc.RpcError as error:
                    if not refusals:
                        _pass_on(error, context)
                for refusal in refusals:
                    context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
                yield answer

        return grpc.stream_stream_rpc_method_handler(handle)


class _TokenFirst(grpc.ServerInterceptor):  # type: ignore[misc]
    """Turns calls without the token away, of which nothing but the head has been read."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def intercept_service(
        self, continuation: Callable[[Any], grpc.RpcMethodHandler], details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler:
        """What gRPC asks before each call."""
        sent = [value for name, value in details.invocation_metadata if name == "authorization"]
        if self._token is not None and not bears(sent, self._token):
            return _TURN_AWAY
        return continuation(details)


def _turn_away(parts: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing, or another")
    yield b""  # never: abort raises


_TURN_AWAY = grpc.stream_stream_rpc_method_handler(_turn_away)


class _Place:
    """One of the places for calls, for as long as the block lasts; refused if none is free."""

    def __init__(self, places: threading.BoundedSemaphore, context: grpc.ServicerContext) -> None:
        self._places = places
        self._context = context

    def __enter__(self) -> None:
        if not self._places.acquire(blocking=False):
            self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_CALLS} calls are running: try again later")

    def __exit__(self, *_: object) -> None:
        self._places.release()


def _without_traces(request: Message, answer: bytes) -> bytes:
    """What pyspark makes its exceptions of, without the server's stack."""
    response = base_pb2.FetchErrorDetailsResponse.FromString(answer)
    for error in response.errors:
        error.ClearField("stack_trace")
        error.message = error.message[:_MOST_DETAILS]
    return bytes(response.SerializeToString())


def _pass_on(error: grpc.RpcError, context: grpc.ServicerContext) -> None:
    """End the call as Spark's server ended it, with the details that pyspark makes its exceptions of."""
    assert isinstance(error, grpc.Call)
    context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
    context.abort(error.code(), (error.details() or "")[:_MOST_DETAILS])
