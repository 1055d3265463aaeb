"""HTTP: what fires, in Alertmanager's shape, beside the limits API of :mod:`alerts.control`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from alerts.engine import Snapshot
from alerts.models import AlertInstance
from alerts.notify.payload import iso
from alerts.notify.plan import Notice, merged
from alerts.settings import AlertSettings
from lake.web.front import FrontDoor
from lake.web.policy import Entrance, Limits, Policy

#: Nothing that this API takes is longer.
MOST_BODY_BYTES = 64 * 1024
#: Connections for people and their tools beside those of the producers that wait.
SPARE_CONNECTIONS = 500


def application(snapshot: Callable[[], Snapshot], control: ASGIApp) -> ASGIApp:
    """The whole HTTP side of the alert process, to be put behind its :func:`door`."""

    async def healthy(_: Request) -> PlainTextResponse:
        return PlainTextResponse("OK")

    async def alerts(request: Request) -> JSONResponse:
        now = snapshot()
        alerts = (alert for evaluation in now.evaluations for alert in evaluation.alerts if alert.state.is_firing)
        firing = [notice.alert for notice in merged(Notice(alert) for alert in alerts)]
        wanted = request.query_params.get("active", "true").lower() != "false"
        return JSONResponse([alert_json(alert, now) for alert in firing] if wanted else [])

    async def silences(_: Request) -> JSONResponse:
        return JSONResponse([])

    ours: ASGIApp = Starlette(routes=[Route("/alerts", alerts), Route("/silences", silences)])
    return Starlette(
        routes=[
            Route("/-/healthy", healthy),
            Mount("/api/v2", app=ours),
            Mount("/", app=control),
        ]
    )


def alert_json(alert: AlertInstance, snapshot: Snapshot) -> dict[str, Any]:
    """One alert as Alertmanager's ``GET /api/v2/alerts`` shows it."""
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "startsAt": iso((alert.fired_at or alert.active_since) + snapshot.ahead),
        "endsAt": "0001-01-01T00:00:00.000Z",
        "updatedAt": iso((snapshot.at or alert.active_since) + snapshot.ahead),
        "generatorURL": "",
        "fingerprint": alert.fingerprint,
        "receivers": [],
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []},
    }


def door(app: ASGIApp, settings: AlertSettings, token: str | None, control_token: str | None) -> FrontDoor:
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
        entrances={"/-/healthy": Entrance(open=True), "/v1/": Entrance(token=control_token)},
        limits=limits,
    )
    return FrontDoor(app, policy.guarded("[alert]"))


def url_of(listener: socket.socket) -> str:
    """Where clients on this machine reach ``listener``."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
