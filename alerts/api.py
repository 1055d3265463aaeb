"""HTTP: what fires, in Alertmanager's shape, beside the limits API of :mod:`alerts.control`."""

from __future__ import annotations

import hmac
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from alerts.engine import Snapshot
from alerts.models import AlertInstance
from alerts.notify.payload import iso
from lake.errors import UserError


def application(snapshot: Callable[[], Snapshot], control: ASGIApp, token: str | None) -> ASGIApp:
    """The whole HTTP side of the alert process; with ``token``, only for those who bring it.

    ``control`` guards itself: it may have a token of its own.
    """

    async def healthy(_: Request) -> PlainTextResponse:
        return PlainTextResponse("OK")

    async def alerts(request: Request) -> JSONResponse:
        now = snapshot()
        firing = [alert for evaluation in now.evaluations for alert in evaluation.alerts if alert.state.is_firing]
        wanted = request.query_params.get("active", "true").lower() != "false"
        return JSONResponse([alert_json(alert, now) for alert in firing] if wanted else [])

    async def silences(_: Request) -> JSONResponse:
        return JSONResponse([])

    ours: ASGIApp = Starlette(routes=[Route("/alerts", alerts), Route("/silences", silences)])
    return Starlette(
        routes=[
            Route("/-/healthy", healthy),
            Mount("/api/v2", app=BearerToken(ours, token) if token else ours),
            Mount("/", app=control),
        ]
    )


def alert_json(alert: AlertInstance, snapshot: Snapshot) -> dict[str, Any]:
    """One alert as Alertmanager's ``GET /api/v2/alerts`` shows it."""
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "startsAt": iso(alert.fired_at or alert.active_since),
        "endsAt": "0001-01-01T00:00:00.000Z",
        "updatedAt": iso(snapshot.at or alert.active_since),
        "generatorURL": "",
        "fingerprint": alert.fingerprint,
        "receivers": [],
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []},
    }


class BearerToken:
    """Lets requests through that carry the token, compared in constant time."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(given, self._expected):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse({"error": "a bearer token is needed"}, 401, {"www-authenticate": "Bearer"})
        await refusal(scope, receive, send)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host``:``port`` (0 = any free port). UserError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"cannot listen at {host}:{port}: {os.strerror(error.errno) if error.errno else error}",
            "set another port under [alert]; 0 takes any free one",
        ) from error
    listener.listen(128)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients on this machine reach ``listener``."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def served(app: ASGIApp, listener: socket.socket) -> Iterator[None]:
    """Serve ``app`` at ``listener`` from a thread of its own, as long as the context lasts."""
    config = uvicorn.Config(
        app, log_level=logging.WARNING, access_log=False, lifespan="off", timeout_graceful_shutdown=1, log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="alert-api", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()
