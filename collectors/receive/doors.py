"""The doors, HTTP and gRPC, on an event loop and thread of their own: a busy sampler keeps no sender waiting."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc

from collectors.receive.desk import Desk
from collectors.receive.rpc import handler, options
from collectors.receive.settings import ReceiveSettings
from collectors.receive.web import front_door
from lake.errors import UserError
from lake.web.policy import Policy
from lake.web.server import Certificate, WebServer, listen

_START_SECONDS = 10.0
_GRACE_SECONDS = 2.0
_MEND = "set other ports in [collect.receive], or grpc_port or http_port to 0"


class Doors:
    """Open until :meth:`close`; UserError at :meth:`open` where a port is taken or a certificate of no use."""

    def __init__(self, settings: ReceiveSettings, policy: Policy, desk: Desk) -> None:
        self._settings = settings
        self._policy = policy
        self._desk = desk
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._ready = threading.Event()
        self._trouble: BaseException | None = None

    @property
    def alive(self) -> bool:
        """Whether the doors are open."""
        return self._thread is not None and self._thread.is_alive() and self._trouble is None

    def open(self) -> None:
        """Listen; returns when both doors do."""
        self._thread = threading.Thread(target=self._run, name="receive-doors", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise UserError("the receiver's ports did not open", "see the log")
        if self._trouble is not None:
            raise self._trouble

    def close(self) -> None:
        """Finish what is being answered, then let go of the ports."""
        if self._thread is None:
            return
        if self._loop is not None and self._closing is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_GRACE_SECONDS + 5.0)
        self._thread = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._trouble = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        settings = self._settings
        rpc = await _open_rpc(settings, settings.grpc_port, self._policy, self._desk) if settings.grpc_port else None
        try:
            if not settings.http_port:
                self._ready.set()
                await self._closing.wait()
            else:
                await self._serve_web(settings, settings.http_port)
        finally:
            if rpc is not None:
                await rpc.stop(_GRACE_SECONDS)

    async def _serve_web(self, settings: ReceiveSettings, port: int) -> None:
        listener = listen(settings.host, port, _MEND)
        tls = None if settings.tls is None else Certificate(settings.tls.certificate, settings.tls.key)
        server = WebServer(front_door(self._desk, self._policy), listener, self._policy.limits, tls)
        serving = asyncio.create_task(server.serve())
        assert self._closing is not None
        closing = asyncio.create_task(self._closing.wait())
        self._ready.set()  # what comes before the server is up waits at the listener
        await asyncio.wait([serving, closing], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        closing.cancel()
        await serving


async def _open_rpc(settings: ReceiveSettings, port: int, policy: Policy, desk: Desk) -> Any:
    server = grpc.aio.server(
        options=options(settings),
        maximum_concurrent_rpcs=2 * settings.max_pending + 100,
    )
    server.add_generic_rpc_handlers((handler(desk, settings, policy.token),))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{port}"
    try:
        if settings.tls is None:
            server.add_insecure_port(address)
        else:
            try:
                pair = (settings.tls.key.expanduser().read_bytes(), settings.tls.certificate.expanduser().read_bytes())
            except OSError as error:
                raise _useless_certificate(error) from None
            server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError:
        raise _taken(settings.host, port, "in use, or its certificate is of no use") from None
    await server.start()
    return server


def _taken(host: str, port: int, reason: str) -> UserError:
    return UserError(f"cannot listen at {host}:{port}: {reason}", _MEND)


def _useless_certificate(error: OSError) -> UserError:
    return UserError(f"the receiver's certificate cannot be used: {error}", "mend certificate and key")
