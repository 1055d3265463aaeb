"""The limits API: what is in force, for producers; the journal and the kill switch, for operators."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alerts.control.board import Board, ServedLimit, Snapshot
from alerts.control.controller import Controller
from alerts.control.standing import Entry

MAX_WAIT_SECONDS = 30.0
#: What a producer is asked to wait when too many poll already (seconds).
BUSY_RETRY_SECONDS = 2
MAX_LISTED = 1000

Handler = Callable[[Request], Awaitable[Response]]


def make_app(board: Board, controller: Controller, token: str | None) -> Starlette:
    """The app. With ``token`` every request needs it as a bearer; without, only loopback may change anything."""

    async def limits(request: Request) -> Response:
        wait = _number(request.query_params.get("wait"), 0.0, MAX_WAIT_SECONDS)
        snapshot = board.snapshot
        headers = {"Cache-Control": "no-cache"}
        if wait > 0 and _matches(request, snapshot):
            if not await board.changed(snapshot.version, wait):
                headers["Retry-After"] = str(BUSY_RETRY_SECONDS)
            snapshot = board.snapshot
        headers["ETag"] = _etag(snapshot)
        if _matches(request, snapshot):
            return Response(status_code=304, headers=headers)
        return JSONResponse(_body(snapshot, datetime.now(UTC)), headers=headers)

    async def actions(request: Request) -> Response:
        count = int(_number(request.query_params.get("limit"), 100, MAX_LISTED))
        entries = await run_in_threadpool(controller.recent, count)
        return JSONResponse({"paused": controller.paused, "actions": [_entry(entry) for entry in entries]})

    async def revoke(request: Request) -> Response:
        action_id = request.path_params["action_id"]
        if await run_in_threadpool(controller.revoke, action_id, datetime.now(UTC)):
            return JSONResponse({"action_id": action_id, "revoked": True})
        return _error(404, f"no limit of action {action_id!r} is in force")

    async def pause(request: Request) -> Response:
        await run_in_threadpool(controller.pause, datetime.now(UTC))
        return JSONResponse({"paused": True})

    async def resume(request: Request) -> Response:
        await run_in_threadpool(controller.resume)
        return JSONResponse({"paused": False})

    def read(handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            return _unauthorized() if token and not _has_token(request, token) else await handler(request)

        return guarded

    def change(handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if token:
                return _unauthorized() if not _has_token(request, token) else await handler(request)
            if not _from_this_machine(request):
                return _error(403, "without a token only this machine may change anything: set token_env")
            return await handler(request)

        return guarded

    return Starlette(
        routes=[
            Route("/v1/limits", read(limits), methods=["GET"]),
            Route("/v1/actions", read(actions), methods=["GET"]),
            Route("/v1/actions/{action_id}/revoke", change(revoke), methods=["POST"]),
            Route("/v1/pause", change(pause), methods=["POST"]),
            Route("/v1/resume", change(resume), methods=["POST"]),
        ]
    )


def _body(snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    in_force = [_limit(limit) for limit in snapshot.limits if limit.valid_until > now]
    return {"version": snapshot.version, "generated_at": now.isoformat(), "limits": in_force}


def _limit(limit: ServedLimit) -> dict[str, Any]:
    return dataclasses.asdict(limit) | {"valid_until": limit.valid_until.isoformat()}


def _entry(entry: Entry) -> dict[str, Any]:
    until = entry.valid_until.isoformat() if entry.valid_until else None
    return dataclasses.asdict(entry) | {"at": entry.at.isoformat(), "valid_until": until}


def _etag(snapshot: Snapshot) -> str:
    return f'"{snapshot.version}"'


def _matches(request: Request, snapshot: Snapshot) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return _etag(snapshot) in tags


def _number(text: str | None, default: float, most: float) -> float:
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return min(most, max(0.0, value)) if math.isfinite(value) else default


def _has_token(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _from_this_machine(request: Request) -> bool:
    """Whether a request comes from a program here, and not from a web page that a browser here has open.

    A page could reach us by a name that resolves to loopback; such a request shows its origin or that name.
    """
    if request.client is None or not _is_loopback(request.client.host):
        return False
    origin = request.headers.get("origin")
    hosts = [urlsplit(f"//{request.headers.get('host', '')}").hostname]
    hosts += [urlsplit(origin).hostname] if origin is not None else []
    return all(host is not None and _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unauthorized() -> Response:
    return JSONResponse({"error": "a valid bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"})


def _error(status: int, what: str) -> Response:
    return JSONResponse({"error": what}, status)
