"""The gRPC door: OTLP's TraceService. Other services are answered UNIMPLEMENTED by gRPC itself."""

from __future__ import annotations

from typing import Any

import grpc

from collectors.receive.desk import Desk
from collectors.receive.status import Code, encoded
from collectors.receive.web import success

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def handler(desk: Desk) -> Any:
    """The service. Its requests stay bytes: they are parsed off the event loop, and a malformed one is kept."""

    async def export(body: bytes, context: Any) -> bytes:
        told = {name.lower(): value for name, value in context.invocation_metadata() or ()}
        if not desk.admits(told.get("authorization")):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is missing or wrong")
        answer = await desk.hand_in("protobuf", body)
        if answer.code is not Code.OK:
            details = (("grpc-status-details-bin", encoded(answer.code, answer.message, answer.retry_seconds)),)
            await context.abort(_CODES[int(answer.code)], answer.message, trailing_metadata=details)
        response: bytes = success(answer).SerializeToString()
        return response

    return grpc.method_handlers_generic_handler(_SERVICE, {"Export": grpc.unary_unary_rpc_method_handler(export)})
