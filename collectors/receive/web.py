"""OTLP/HTTP at ``/v1/traces`` and the client's events at ``/v1/events``, behind access control of :mod:`lake.web`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from collectors.receive.handler import RequestHandler
from collectors.receive.inbox import Answer, Format
from collectors.receive.settings import ReceiveSettings
from collectors.receive.status import Code, encoded
from lake.web.access import AccessControl
from lake.web.address import peer_of
from lake.web.policy import JSON, Entrance, Limits, Policy, Refusal, content_type

PROTOBUF = "application/x-protobuf"
_FORMATS: dict[str, Format] = {PROTOBUF: "protobuf", JSON: "json"}
_HTTP = {
    Code.OK: 200,
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
}
_CODES = {
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    408: Code.UNAVAILABLE,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
}
_ENTRANCES = {
    "/v1/traces": Entrance(frozenset({PROTOBUF, JSON})),
    "/v1/events": Entrance(frozenset({JSON})),
}
#: What is answered elsewhere, whatever is sent there.
_ELSEWHERE = Entrance(frozenset({PROTOBUF, JSON}))


def policy_of(settings: ReceiveSettings, token: str | None) -> Policy:
    """Who may send, and how much; UserError where others than this machine's could without a token."""
    return Policy(
        host=settings.host,
        token=token,
        names=settings.hosts,
        entrances={**_ENTRANCES, "/": _ELSEWHERE},
        limits=limits_of(settings),
        refusal=_refused,
    ).guarded("[collect.receive]")


def limits_of(settings: ReceiveSettings) -> Limits:
    """Access control's limits."""
    return Limits(
        header_seconds=settings.header_seconds,
        body_seconds=settings.body_seconds,
        idle_seconds=settings.idle_seconds,
        body_bytes=settings.max_request_bytes,
        bytes_in_flight=settings.max_pending_bytes,
        connections=settings.max_connections,
        unknown_peer_connections=max(1, settings.max_connections // 4),
        reserved_connections=settings.max_connections // 4,
    )


def access_controlled(handler: RequestHandler, policy: Policy) -> AccessControl:
    """The ASGI application."""

    async def traces(request: Request) -> Response:
        kind = content_type(request.scope["headers"])
        if kind not in _FORMATS:
            return _refusal(kind, 415, Code.INVALID_ARGUMENT, f"the content type is {' or '.join(_FORMATS)}")
        answer = await handler.hand_in(_FORMATS[kind], await request.body(), _peer(request))
        if answer.code is not Code.OK:
            return _answered(kind, answer)
        if kind == JSON:
            partial = {"rejectedSpans": str(answer.rejected), "errorMessage": answer.message}
            return JSONResponse({"partialSuccess": partial} if answer.rejected else {})
        return Response(success(answer).SerializeToString(), media_type=PROTOBUF)

    async def events(request: Request) -> Response:
        answer = await handler.hand_in("events", await request.body(), _peer(request))
        return _answered(JSON, answer) if answer.code is not Code.OK else Response(answer.body, media_type=JSON)

    async def elsewhere(request: Request) -> Response:
        message = "the receiver takes /v1/traces and /v1/events alone"
        return _refusal(content_type(request.scope["headers"]), 404, Code.NOT_FOUND, message)

    routes: Sequence[Route] = [
        Route("/v1/traces", traces, methods=["POST"]),
        Route("/v1/events", events, methods=["POST"]),
        Route("/{path:path}", elsewhere, methods=["GET", "POST", "PUT"]),
    ]
    return AccessControl(Starlette(routes=routes), policy)


def success(answer: Answer) -> ExportTraceServiceResponse:
    """OTLP's answer to a request that was taken, if not wholly."""
    response = ExportTraceServiceResponse()
    if answer.rejected:
        response.partial_success.rejected_spans = answer.rejected
        response.partial_success.error_message = answer.message
    return response


def _peer(request: Request) -> str:
    return "" if request.client is None else peer_of(request.client.host)


def _answered(kind: str, answer: Answer) -> Response:
    status = answer.status or _HTTP[answer.code]
    headers = {} if answer.retry_seconds is None else {"Retry-After": str(answer.retry_seconds)}
    return _refusal(kind, status, answer.code, answer.message, answer.retry_seconds, headers)


def _refused(scope: Scope, refusal: Refusal) -> Response:
    code = _CODES.get(refusal.status, Code.INVALID_ARGUMENT)
    return _refusal(content_type(scope["headers"]), refusal.status, code, refusal.message, refusal.retry_seconds)


def _refusal(
    kind: str,
    status: int,
    code: Code,
    message: str,
    retry_seconds: int | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """A Status in the sender's own encoding, as OTLP/HTTP asks for."""
    if kind == PROTOBUF:
        return Response(encoded(code, message, retry_seconds), status, headers, media_type=PROTOBUF)
    return Response(json.dumps({"code": int(code), "message": message}), status, headers, media_type=JSON)
