"""The HTTP door: OTLP/HTTP at ``/v1/traces``, the client's events at ``/v1/events``."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from collectors.receive.desk import Desk
from collectors.receive.inbox import Answer, Format
from collectors.receive.status import Code, encoded

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_FORMATS: dict[str, Format] = {_PROTOBUF: "protobuf", _JSON: "json"}
_HTTP = {
    Code.OK: 200,
    Code.INVALID_ARGUMENT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNAVAILABLE: 503,
}
#: A body that has not come after so many seconds does not come.
_BODY_SECONDS = 30.0


class _Refused(Exception):
    """A request that is refused before anything reads it."""

    def __init__(self, status: int, code: Code, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def application(desk: Desk, most_bytes: int) -> Starlette:
    """The ASGI application; bodies of more than ``most_bytes``, packed or unpacked, are refused while they come."""

    def door(handle: Callable[[Request, bytes], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                if not desk.admits(request.headers.get("authorization")):
                    raise _Refused(401, Code.UNAUTHENTICATED, "the bearer token is missing or wrong")
                return await handle(request, await _body(request, most_bytes))
            except _Refused as refused:
                return _refusal(_content_type(request), refused.status, refused.code, str(refused))

        return endpoint

    async def traces(request: Request, body: bytes) -> Response:
        kind = _content_type(request)
        format = _FORMATS.get(kind)
        if format is None:
            raise _Refused(415, Code.INVALID_ARGUMENT, f"the content type is {_PROTOBUF} or {_JSON}")
        answer = await desk.hand_in(format, body)
        if answer.code is not Code.OK:
            return _answered(kind, answer)
        if kind == _JSON:
            partial = {"rejectedSpans": str(answer.rejected), "errorMessage": answer.message}
            return JSONResponse({"partialSuccess": partial} if answer.rejected else {})
        return Response(success(answer).SerializeToString(), media_type=_PROTOBUF)

    async def events(request: Request, body: bytes) -> Response:
        answer = await desk.hand_in("events", body)
        return _answered(_JSON, answer) if answer.code is not Code.OK else Response(answer.body, media_type=_JSON)

    async def elsewhere(request: Request) -> Response:
        message = "the receiver takes /v1/traces and /v1/events alone"
        return _refusal(_content_type(request), 404, Code.NOT_FOUND, message)

    routes = [
        Route("/v1/traces", door(traces), methods=["POST"]),
        Route("/v1/events", door(events), methods=["POST"]),
        Route("/{path:path}", elsewhere, methods=["GET", "POST", "PUT"]),
    ]
    return Starlette(routes=routes)


def success(answer: Answer) -> ExportTraceServiceResponse:
    """OTLP's answer to a request that was taken, if not wholly."""
    response = ExportTraceServiceResponse()
    if answer.rejected:
        response.partial_success.rejected_spans = answer.rejected
        response.partial_success.error_message = answer.message
    return response


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _body(request: Request, most: int) -> bytes:
    """The body, unpacked; refused as soon as it is too long."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > most:
        raise _too_long(most)
    packing = request.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", "gzip", ""):
        raise _Refused(415, Code.INVALID_ARGUMENT, "the content encoding is gzip or none")
    chunks: list[bytes] = []
    came = length = 0
    unpacking = zlib.decompressobj(wbits=31) if packing == "gzip" else None
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                came += len(chunk)
                if unpacking is not None and chunk:
                    chunk = unpacking.decompress(chunk, most + 1 - length)
                length += len(chunk)
                if length > most or came > most:
                    raise _too_long(most)
                chunks.append(chunk)
    except TimeoutError:
        raise _Refused(408, Code.UNAVAILABLE, "the body did not come in time") from None
    except (zlib.error, ClientDisconnect):
        raise _Refused(400, Code.INVALID_ARGUMENT, "the body is not gzip, or not whole") from None
    if unpacking is not None and (not unpacking.eof or unpacking.unused_data):
        raise _Refused(400, Code.INVALID_ARGUMENT, "the body is not gzip, not whole, or more than one member")
    return b"".join(chunks)


def _too_long(most: int) -> _Refused:
    return _Refused(413, Code.RESOURCE_EXHAUSTED, f"a request has at most {most} bytes, packed or unpacked")


def _answered(kind: str, answer: Answer) -> Response:
    return _refusal(kind, _HTTP[answer.code], answer.code, answer.message, answer.retry_seconds)


def _refusal(kind: str, status: int, code: Code, message: str, retry_seconds: int | None = None) -> Response:
    """A Status in the sender's own encoding, as OTLP/HTTP asks for."""
    headers = {} if retry_seconds is None else {"Retry-After": str(retry_seconds)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if kind == _PROTOBUF:
        return Response(encoded(code, message, retry_seconds), status, headers, media_type=_PROTOBUF)
    text = json.dumps({"code": int(code), "message": message})
    return Response(text, status, headers, media_type=_JSON)
