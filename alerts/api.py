"""HTTP: Alertmanager's API beside the limits API of :mod:`alerts.control`, health and readiness."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from alerts.engine import Snapshot
from alerts.metrics import CONTENT_TYPE
from alerts.notify.payload import iso
from alerts.settings import AlertSettings, http_address
from lake.clock import Clock
from lake.web.access import AccessControl
from lake.web.policy import JSON, Entrance, Limits, Policy

#: Nothing that this API takes is longer; Prometheus sends 64 alerts at a time.
MOST_BODY_BYTES = 1024 * 1024
#: A process whose last round is older is not ready: it hangs, or the lake does.
READY_WITHIN = timedelta(minutes=1)
_WRITES = Entrance(takes=frozenset({JSON}))
#: Connections for people and their tools beside those of the producers that wait.
SPARE_CONNECTIONS = 500


def application(
    snapshot: Callable[[], Snapshot],
    v2: ASGIApp,
    control: ASGIApp,
    clock: Clock,
    metrics: Callable[[], str] = str,
) -> ASGIApp:
    """The whole HTTP side of the alert process, to be :func:`access_controlled`; ``metrics`` tells its exposition."""

    async def told(_: Request) -> Response:
        return Response(await run_in_threadpool(metrics), media_type=CONTENT_TYPE)

    async def healthy(_: Request) -> PlainTextResponse:
        return PlainTextResponse("OK")

    async def ready(_: Request) -> PlainTextResponse:
        at = snapshot().at
        if at is None:
            return PlainTextResponse("no rule has been evaluated yet", 503)
        if clock.now() - at > READY_WITHIN:
            return PlainTextResponse(f"no rule has been evaluated since {iso(at + clock.ahead)}", 503)
        return PlainTextResponse("OK")

    return Starlette(
        routes=[
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/metrics", told),
            Mount("/api/v2", app=v2),
            Mount("/", app=control),
        ]
    )


def access_controlled(
    app: ASGIApp, settings: AlertSettings, token: str | None, control_token: str | None
) -> AccessControl:
    """``app`` behind the rules of its listener; UserError where others could come without a token.

    The limits API may have a token of its own. Producers poll it, each holding a connection for as long as it waits.
    """
    limits = Limits(
        body_bytes=MOST_BODY_BYTES,
        bytes_in_flight=16 * MOST_BODY_BYTES,
        connections=settings.control.max_waiters + SPARE_CONNECTIONS,
        unknown_peer_connections=settings.control.max_waiters + SPARE_CONNECTIONS // 4,
    )
    policy = Policy(
        host=settings.host,
        token=token,
        names=settings.names,
        entrances={
            "/-/healthy": Entrance(open=True),
            "/-/ready": Entrance(open=True),
            "/v1/": Entrance(token=control_token),
            **{f"/api/v2/{path}": _WRITES for path in ("alerts", "silences", "acknowledgements")},
        },
        limits=limits,
    )
    return AccessControl(app, policy.guarded("[alert]"))


def url_of(listener: socket.socket) -> str:
    """Where clients on this machine reach ``listener``."""
    return http_address(*listener.getsockname()[:2])
