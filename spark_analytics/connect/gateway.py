"""The gate before Spark Connect: who has the token may ask, and what asks for more than rows is refused.

Requests that can hold a plan are read and checked (:mod:`spark_analytics.connect.allowed`); the others – to attach to a
running query again, to release or to interrupt it – pass as they are. Answers pass unread.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError
from spark_analytics.connect.allowed import MOST_BYTES, check_artifacts, check_config, checked_analysis, checked_plan

_SERVICE = "spark.connect.SparkConnectService"
#: Calls at once; a query that runs holds one of them.
_MOST_CALLS = 64
_SIZES = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.max_send_message_length", MOST_BYTES)]

Call = Callable[[Any, grpc.ServicerContext], Any]


class Gateway:
    """Listens at ``address`` and asks Spark's own server at ``upstream``; it starts at once, and ends by ``close``.

    ``names`` are the tables and views that may be read; ``token`` what clients must send, None for nothing;
    ``upstream_token`` what Spark's own server asks for.
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
    ) -> None:
        self._token = None if token is None else f"Bearer {token}".encode()
        self._sent = (("authorization", f"Bearer {upstream_token}"),)
        self._channel = grpc.insecure_channel(upstream, _SIZES)
        handlers = {
            "ExecutePlan": self._stream("ExecutePlan", base_pb2.ExecutePlanRequest, lambda r: checked_plan(r, names)),
            "AnalyzePlan": self._unary(
                "AnalyzePlan", base_pb2.AnalyzePlanRequest, lambda r: checked_analysis(r, names)
            ),
            "Config": self._unary("Config", base_pb2.ConfigRequest, _config),
            "ReattachExecute": self._stream("ReattachExecute"),
            "AddArtifacts": self._upload(),
            **{name: self._unary(name) for name in ("ArtifactStatus", "Interrupt", "ReleaseExecute", "ReleaseSession")},
            **{name: self._unary(name) for name in ("FetchErrorDetails", "CloneSession", "GetStatus")},
        }
        self._server = grpc.server(
            ThreadPoolExecutor(_MOST_CALLS, "gateway"), options=_SIZES, maximum_concurrent_rpcs=_MOST_CALLS
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        if credentials is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, credentials)
        self._server.start()

    def close(self, grace_seconds: float = 2.0) -> None:
        """Let running calls end for a moment, then let go of them."""
        self._server.stop(grace_seconds).wait()
        self._channel.close()

    def _unary(
        self, name: str, request: Any = None, check: Callable[[Any], Any] | None = None
    ) -> grpc.RpcMethodHandler:
        call = self._channel.unary_unary(f"/{_SERVICE}/{name}", request and request.SerializeToString)

        def handle(asked: Any, context: grpc.ServicerContext) -> bytes:
            self._admit(context)
            try:
                answer: bytes = call(_passed(asked, check, context), metadata=self._sent, timeout=_left(context))
            except grpc.RpcError as error:
                _pass_on(error, context)
            return answer

        return grpc.unary_unary_rpc_method_handler(handle, request and request.FromString)

    def _stream(
        self, name: str, request: Any = None, check: Callable[[Any], Any] | None = None
    ) -> grpc.RpcMethodHandler:
        call = self._channel.unary_stream(f"/{_SERVICE}/{name}", request and request.SerializeToString)

        def handle(asked: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            self._admit(context)
            answers = call(_passed(asked, check, context), metadata=self._sent, timeout=_left(context))
            context.add_callback(answers.cancel)
            try:
                yield from answers
            except grpc.RpcError as error:
                _pass_on(error, context)

        return grpc.unary_stream_rpc_method_handler(handle, request and request.FromString)

    def _upload(self) -> grpc.RpcMethodHandler:
        request = base_pb2.AddArtifactsRequest
        call = self._channel.stream_unary(f"/{_SERVICE}/AddArtifacts", request.SerializeToString)

        def handle(parts: Iterator[base_pb2.AddArtifactsRequest], context: grpc.ServicerContext) -> bytes:
            self._admit(context)
            refusals: list[UserError] = []

            def passed() -> Iterator[base_pb2.AddArtifactsRequest]:
                for part in parts:
                    try:
                        check_artifacts(part)
                    except UserError as error:
                        refusals.append(error)
                        return
                    yield part

            try:
                answer: bytes = call(passed(), metadata=self._sent, timeout=_left(context))
            except grpc.RpcError as error:
                if not refusals:
                    _pass_on(error, context)
            for refusal in refusals:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
            return answer

        return grpc.stream_unary_rpc_method_handler(handle, request.FromString)

    def _admit(self, context: grpc.ServicerContext) -> None:
        if self._token is None:
            return
        sent = dict(context.invocation_metadata()).get("authorization", "")
        if not hmac.compare_digest(sent.encode() if isinstance(sent, str) else sent, self._token):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing, or another")


def _passed(asked: Any, check: Callable[[Any], Any] | None, context: grpc.ServicerContext) -> Any:
    try:
        return asked if check is None else check(asked)
    except UserError as error:
        return context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))  # raises


def _config(request: base_pb2.ConfigRequest) -> base_pb2.ConfigRequest:
    check_config(request)
    return request


def _left(context: grpc.ServicerContext) -> float | None:
    """Seconds that the client will wait still; None for as long as it takes."""
    left = context.time_remaining()
    return None if left is None or left > 1e9 else left


def _pass_on(error: grpc.RpcError, context: grpc.ServicerContext) -> None:
    """End the call as Spark's server ended it, with the details that pyspark makes its exceptions of."""
    assert isinstance(error, grpc.Call)
    context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
    context.abort(error.code(), error.details() or "")
