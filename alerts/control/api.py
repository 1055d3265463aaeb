"""The limits API: what is in force, for producers; the journal and the kill switch, for operators; how many consumers
a queue needs, for what scales them.

It stands behind :mod:`lake.web`'s access control, which asks for the token and lets no web page in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from datetime import timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alerts.control.active_limit import ActiveLimit, Entry
from alerts.control.advisor import Advisor
from alerts.control.answers import Answers, Selector
from alerts.control.board import Board
from alerts.control.capacity_page import CONTENT_TYPE, as_json, exposition
from alerts.control.controller import OPERATOR, Controller
from lake.clock import Clock
from lake.errors import SojournError
from lake.visible import visible

MAX_WAIT_SECONDS = 30.0
#: What a producer is asked to wait when too many poll already (seconds).
BUSY_RETRY_SECONDS = 2
MAX_LISTED = 1000
#: Characters of the name of who asks.
MOST_NAME = 200


def make_app(
    board: Board, controller: Controller, clock: Clock | None = None, advisor: Advisor | None = None
) -> Starlette:
    """The app, which asks nobody who they are. Leases end by ``clock``, which nobody sets."""
    clock, advisor = clock or Clock(), advisor or Advisor((), 1.0)
    answers = Answers(board)

    async def limits(request: Request) -> Response:
        """``wait``: seconds to hold the answer until something changes; ``broker``, ``queue``: of these alone, each as
        often as one likes; ``since``: the version that the client has, for the compact form."""
        params = request.query_params
        wait = _number(params.get("wait"), 0.0, MAX_WAIT_SECONDS)
        selector = Selector(frozenset(params.getlist("broker")), frozenset(params.getlist("queue")))
        since = _version(params.get("since"))
        known = _known(request, board.snapshot.version) if since is None else since
        headers, waited = {"Cache-Control": "no-cache"}, 0.0
        if wait > 0 and known == board.snapshot.version:
            began = time.monotonic()
            if not await _waited(request, board, answers, selector, known, wait):
                headers["Retry-After"] = str(BUSY_RETRY_SECONDS)
            waited = round(time.monotonic() - began, 3)
        version = board.snapshot.version
        if version == known:
            return Response(status_code=304, headers=headers | {"ETag": _etag(version)})
        now = clock.now()
        if since is None:
            version, body = answers.plain(selector, now, clock.ahead, waited)
        else:
            version, body = answers.compact(selector, since, now, waited)
        return Response(body, headers=headers | {"ETag": _etag(version)}, media_type="application/json")

    async def capacity(request: Request) -> Response:
        """``broker``, ``queue``, ``subscriber``: of these alone, each as often as one likes."""
        now, params = clock.now(), request.query_params
        wanted = [set(params.getlist(name)) for name in ("broker", "queue", "subscriber")]
        found = [
            one
            for one in advisor.capacities(now)
            if all(not names or part in names for names, part in zip(wanted, one.place, strict=True))
        ]
        return JSONResponse(
            {"generated_at": (now + clock.ahead).isoformat(), "queues": [as_json(one, clock.ahead) for one in found]}
        )

    async def capacity_metrics(request: Request) -> Response:
        return Response(exposition(advisor.capacities(clock.now())), media_type=CONTENT_TYPE)

    async def actions(request: Request) -> Response:
        count = int(_number(request.query_params.get("limit"), 100, MAX_LISTED))
        entries = await run_in_threadpool(controller.recent, count)
        there = sorted(controller.active_limits.values(), key=lambda one: one.key)
        active = [_active_limit(one, clock.ahead) for one in there]
        return JSONResponse(
            {"paused": controller.paused, "standing": active, "actions": [_entry(entry) for entry in entries]}
        )

    async def approve(request: Request) -> Response:
        action_id = request.path_params["action_id"]
        try:
            done = await run_in_threadpool(controller.approve, action_id, clock.now(), _by(request))
        except SojournError as error:
            return _error(409, str(error))
        if done:
            return JSONResponse({"action_id": action_id, "approved": True})
        return _error(404, f"no action {action_id!r} waits for approval")

    async def revoke(request: Request) -> Response:
        action_id = request.path_params["action_id"]
        if await run_in_threadpool(controller.revoke, action_id, clock.now(), _by(request)):
            return JSONResponse({"action_id": action_id, "revoked": True})
        return _error(404, f"no limit of action {action_id!r} is in force")

    async def pause(request: Request) -> Response:
        await run_in_threadpool(controller.pause, clock.now(), _by(request))
        return JSONResponse({"paused": True})

    async def resume(request: Request) -> Response:
        await run_in_threadpool(controller.resume, _by(request))
        return JSONResponse({"paused": False})

    return Starlette(
        routes=[
            Route("/v1/limits", limits, methods=["GET"]),
            Route("/v1/capacity", capacity, methods=["GET"]),
            Route("/v1/capacity/metrics", capacity_metrics, methods=["GET"]),
            Route("/v1/actions", actions, methods=["GET"]),
            Route("/v1/actions/{action_id}/approve", approve, methods=["POST"]),
            Route("/v1/actions/{action_id}/revoke", revoke, methods=["POST"]),
            Route("/v1/pause", pause, methods=["POST"]),
            Route("/v1/resume", resume, methods=["POST"]),
        ]
    )


async def _waited(
    request: Request, board: Board, answers: Answers, selector: Selector, known: int, seconds: float
) -> bool:
    """Wait until something changes that ``selector`` takes, or the client is gone, or ``seconds`` are over.

    False at once where too many wait already.
    """
    gone = asyncio.ensure_future(_gone(request))
    deadline, version = time.monotonic() + seconds, known
    try:
        while (left := deadline - time.monotonic()) > 0 and not board.closed:
            changed = asyncio.ensure_future(board.changed(version, left))
            await asyncio.wait({changed, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not changed.done():  # nobody is there to hear the answer: its place is another's
                changed.cancel()
                await asyncio.wait({changed})
                return True
            if not changed.result():
                return False
            version = board.snapshot.version
            if version != known and answers.concerns(selector, known):
                return True
        return True
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _entry(entry: Entry) -> dict[str, Any]:
    until = entry.valid_until.isoformat() if entry.valid_until else None
    return dataclasses.asdict(entry) | {"at": entry.at.isoformat(), "valid_until": until}


def _active_limit(one: ActiveLimit, ahead: timedelta) -> dict[str, Any]:
    """``state``: whether it is ``in_force``, ``proposed`` or a ``shadow``, with what it would have done so far."""
    state = "in_force" if not one.dry_run else "proposed" if one.proposed else "shadow"
    return {
        "action_id": one.action_id,
        "state": state,
        "policy": one.key.policy,
        **dataclasses.asdict(one.key.target),
        "rate": one.limit.rate,
        "valid_until": (one.valid_until + ahead).isoformat(),
        "reason": one.reason,
        "would_have": None if one.shadow is None else str(one.shadow),
    }


def _etag(version: int) -> str:
    return f'"{version}"'


def _known(request: Request, version: int) -> int | None:
    """``version``, if the request says that the client has it."""
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return version if _etag(version) in tags else None


def _by(request: Request) -> str:
    """Who asks for it, as they say themselves: the token says that they may."""
    return visible(request.query_params.get("by") or OPERATOR, MOST_NAME)


def _version(text: str | None) -> int | None:
    """The version that ``since`` gives; one that makes no sense is none that we ever had."""
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _number(text: str | None, default: float, most: float) -> float:
    try:
        value = float(text) if text is not None else default
    except ValueError:
        return default
    return min(most, max(0.0, value)) if math.isfinite(value) else default


def _error(status: int, what: str) -> Response:
    return JSONResponse({"error": what}, status)
