"""The limits API: what is in force, for producers; the journal and the kill switch, for operators.

It stands behind :mod:`lake.web`'s front door, which asks for the token and lets no web page in.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alerts.control.board import Board, ServedLimit, Snapshot
from alerts.control.controller import Controller
from alerts.control.standing import Entry
from lake.clock import Clock

MAX_WAIT_SECONDS = 30.0
#: What a producer is asked to wait when too many poll already (seconds).
BUSY_RETRY_SECONDS = 2
MAX_LISTED = 1000


def make_app(board: Board, controller: Controller, clock: Clock | None = None) -> Starlette:
    """The app, which asks nobody who they are. Leases end by ``clock``, which nobody sets."""
    clock = clock or Clock()

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
        return JSONResponse(_body(snapshot, clock.now(), clock.ahead), headers=headers)

    async def actions(request: Request) -> Response:
        count = int(_number(request.query_params.get("limit"), 100, MAX_LISTED))
        entries = await run_in_threadpool(controller.recent, count)
        return JSONResponse({"paused": controller.paused, "actions": [_entry(entry) for entry in entries]})

    async def revoke(request: Request) -> Response:
        action_id = request.path_params["action_id"]
        if await run_in_threadpool(controller.revoke, action_id, clock.now()):
            return JSONResponse({"action_id": action_id, "revoked": True})
        return _error(404, f"no limit of action {action_id!r} is in force")

    async def pause(request: Request) -> Response:
        await run_in_threadpool(controller.pause, clock.now())
        return JSONResponse({"paused": True})

    async def resume(request: Request) -> Response:
        await run_in_threadpool(controller.resume)
        return JSONResponse({"paused": False})

    return Starlette(
        routes=[
            Route("/v1/limits", limits, methods=["GET"]),
            Route("/v1/actions", actions, methods=["GET"]),
            Route("/v1/actions/{action_id}/revoke", revoke, methods=["POST"]),
            Route("/v1/pause", pause, methods=["POST"]),
            Route("/v1/resume", resume, methods=["POST"]),
        ]
    )


def _body(snapshot: Snapshot, now: datetime, ahead: timedelta) -> dict[str, Any]:
    in_force = [_limit(limit, ahead) for limit in snapshot.limits if limit.valid_until > now]
    return {"version": snapshot.version, "generated_at": (now + ahead).isoformat(), "limits": in_force}


def _limit(limit: ServedLimit, ahead: timedelta) -> dict[str, Any]:
    return dataclasses.asdict(limit) | {"valid_until": (limit.valid_until + ahead).isoformat()}


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


def _error(status: int, what: str) -> Response:
    return JSONResponse({"error": what}, status)
