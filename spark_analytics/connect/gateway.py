"""The gate before Spark Connect: who has the token may ask, and what asks for more than rows is refused.

Connections come through a relay (:mod:`lake.web.relay`), which bounds them in all and for each peer. The token is
looked at before a message is read: a call without it ends at once, whatever it would have sent, and takes none of the
places of those who have it; of these, no peer has more than half. Each request is then read, checked
(:mod:`spark_analytics.connect.allowed`) and written anew. Answers pass unread, but for settings and for what Spark
tells of its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError
from lake.secret import bears
from lake.web.calls import TooManyCalls, options
from lake.web.policy import Limits
from lake.web.server import listen
from lake.web.threaded import Caller, ThreadedRelay
from spark_analytics.connect.allowed import MOST_BYTES, Known, Look, checked, no_look, read_request
from spark_analytics.connect.own_rows import OwnRows
from spark_analytics.connect.settings import readable_answer
from spark_analytics.connect.times import GRACE_SECONDS, Query, QueryTimes, named

_SERVICE = "spark.connect.SparkConnectService"
#: Calls at once of those who have the token, half of them of one peer; a query that runs holds one of them.
MOST_CALLS = 64
#: Threads and calls beyond them, to turn away the others.
_TURNED_AWAY = 16
_MOST_OPEN = 1024
#: Messages that are read at once, and seconds that each may take.
_MOST_READ, _READ_SECONDS = 8, 30.0
#: That a query may run.
DEFAULT_SECONDS = 600.0
_MOST_DETAILS = 4096
#: A connection has 10 s to shake hands, and a minute to ask something.
_LIMITS = Limits(header_seconds=10.0, idle_seconds=60.0)
_SENT = [("grpc.max_send_message_length", MOST_BYTES)]
#: Milliseconds. A connection answers a ping within 20 s.
_PINGS = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 2),
]
_SIZES = [("grpc.max_receive_message_length", MOST_BYTES), *_SENT]

Call = Callable[..., Any]


class Gateway:
    """Listens at ``host``:``port`` and asks Spark's own server at ``upstream``; it starts at once, ends by ``close``.

    :attr:`port` is where it listens, as the system chose it where ``port`` is 0. UserError where it cannot.

    ``names`` are the tables and views that may be read; ``token`` what clients must send, None for nothing;
    ``upstream_token`` what Spark's own server asks for. A query has ``seconds``. ``look`` is a second look at each
    statement and the names that it may use, which raises UserError; ``cancel`` ends the jobs of a query; ``limits``
    bound connections.
    """

    def __init__(
        self,
        host: str,
        port: int,
        upstream: str,
        names: Collection[str],
        *,
        token: str | None,
        upstream_token: str,
        credentials: grpc.ServerCredentials | None = None,
        seconds: float = DEFAULT_SECONDS,
        look: Look = no_look,
        cancel: Callable[[Query], None] = lambda query: None,
        limits: Limits = _LIMITS,
    ) -> None:
        listener = listen(host, port, "choose another --port")
        self.port: int = listener.getsockname()[1]
        self._known = Known(frozenset(names), look)
        self._sent = (("authorization", f"Bearer {upstream_token}"),)
        self._channel = grpc.insecure_channel(upstream, _SIZES)
        self._asks_token = token is not None
        tls = credentials is not None
        self._relay = ThreadedRelay(listener, limits, tls=tls, calls=MOST_CALLS, messages=_MOST_READ)
        interrupt: Call = self._channel.unary_unary(f"/{_SERVICE}/Interrupt")
        self._times = QueryTimes(
            seconds,
            lambda request: interrupt(request.SerializeToString(), metadata=self._sent, timeout=GRACE_SECONDS),
            cancel,
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
            options=[*options(limits, message_bytes=MOST_BYTES, streams=MOST_CALLS), *_SENT, *_PINGS],
            maximum_concurrent_rpcs=_MOST_OPEN,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        try:
            if credentials is None:
                self._server.add_insecure_port(self._relay.address)
            else:
                self._server.add_secure_port(self._relay.address, credentials)
            self._server.start()
        except RuntimeError:
            self.close(0)
            raise UserError(
                "the gate cannot open: its certificate is of no use, or the path of temporary files is too long",
                "name another certificate and key, or set TMPDIR",
            ) from None
        self._relay.start()

    def close(self, grace_seconds: float = 2.0) -> None:
        """Let running calls end for a moment, then let go of them."""
        self._server.stop(grace_seconds).wait()
        self._relay.close()
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
            with self._place(context) as caller:
                part = self._part(caller, parts, context) or b""
                try:
                    request = checked(read_request(kind, part), self._known)
                except UserError as error:
                    context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
                caller.proven()
                query = self._query(request)
                left = self._left(query, context)
                with caller.answering():
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

    @contextmanager
    def _place(self, context: grpc.ServicerContext) -> Iterator[Caller]:
        """Who calls, and one of the places for calls; the call is refused if none is free."""
        caller = self._relay.caller(context.peer())
        if caller is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection has ended")
            raise AssertionError("abort raises")
        if self._asks_token:  # and has been shown it
            caller.proven()
        try:
            with caller.place():
                yield caller
        except TooManyCalls:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_CALLS} calls are running, or half of them yours: try again"
            )

    def _part(self, caller: Caller, parts: Iterator[bytes], context: grpc.ServicerContext) -> bytes | None:
        """The next message of a call, None at its end. gRPC holds what has come of each: few are read at once."""
        try:
            with caller.turn(_READ_SECONDS, context.cancel):
                return next(parts, None)
        except TimeoutError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "others are sending: try again later")
            raise  # never: abort raises

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

            def passed(caller: Caller) -> Iterator[bytes]:
                while (part := self._part(caller, parts, context)) is not None:
                    try:
                        request = checked(read_request(base_pb2.AddArtifactsRequest, part), self._known)
                        rows.check(request)
                    except UserError as error:
                        refusals.append(error)
                        return
                    yield request.SerializeToString()

            with self._place(context) as caller:
                answer = b""
                try:
                    answer = call(passed(caller), metadata=self._sent, timeout=self._left(None, context))
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
