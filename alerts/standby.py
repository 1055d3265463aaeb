"""An alert process that another one evaluates in the place of: it answers probes, and says that it stands by."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from alerts.api import access_controlled, url_of
from alerts.metrics import CONTENT_TYPE, standing_by
from alerts.settings import AlertSettings
from lake.errors import UserError
from lake.web.server import WebServer, listen, served

log = logging.getLogger(__name__)

_SAID = "standing by: another process evaluates"


class Address:
    """Where the process listens, whether it evaluates or stands by: nobody who connects meanwhile is turned away."""

    def __init__(self, settings: AlertSettings) -> None:
        self._settings = settings
        self._kept: socket.socket | None = None

    def listener(self) -> socket.socket:
        """A socket that listens there, its server's to close. UserError where somebody else does."""
        if self._kept is not None:
            return self._kept.dup()
        settings = self._settings
        return listen(settings.host, settings.port, "set another port under [alert]; 0 takes any free one")

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        """Answer as long as the context lasts; what evaluates on this machine may have the address, and keeps it."""
        try:
            self._kept = self._kept or self.listener()
        except UserError as error:
            log.warning("%s: standing by without an answer to probes", error)
            yield
            return
        front = access_controlled(_application(), self._settings, self._settings.token(), None)
        log.info("listening at %s", url_of(self._kept))
        with served(WebServer(front, self.listener(), front.limits), "alert-standby"):
            yield

    def close(self) -> None:
        """Listen no more."""
        if self._kept is not None:
            self._kept.close()


def _application() -> Starlette:
    async def healthy(_: Request) -> Response:
        return PlainTextResponse("OK")

    async def told(_: Request) -> Response:
        return Response(standing_by(), media_type=CONTENT_TYPE)

    async def elsewhere(_: Request) -> Response:
        return PlainTextResponse(_SAID, 503)

    every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(
        routes=[
            Route("/-/healthy", healthy),
            Route("/metrics", told),
            Route("/{path:path}", elsewhere, methods=every),
        ]
    )
