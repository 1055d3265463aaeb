"""The servers, HTTP and gRPC, on an event loop and thread of their own: a busy sampler keeps no sender waiting."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc

from collectors.receive.handler import RequestHandler
from collectors.receive.rpc import STREAMS, service
from collectors.receive.settings import ReceiveSettings, ReceiveTls
from collectors.receive.web import access_controlled
from lake.errors import UserError
from lake.web.calls import options
from lake.web.policy import Policy
from lake.web.relay import Relay
from lake.web.server import Certificate, WebServer, listen

_START_SECONDS = 10.0
_GRACE_SECONDS = 2.0
_MEND = "set other ports in [collect.receive], or grpc_port or http_port to 0"


class Servers:
    """Open until :meth:`close`; UserError at :meth:`open` where a port is taken or a certificate of no use."""

    def __init__(self, settings: ReceiveSettings, policy: Policy, handler: RequestHandler) -> None:
        self._settings = settings
        self._policy = policy
        self._handler = handler
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._ready = threading.Event()
        self._trouble: BaseException | None = None

    @property
    def alive(self) -> bool:
        """Whether the servers are open."""
        return self._thread is not None and self._thread.is_alive() and self._trouble is None

    def open(self) -> None:
        """Listen; returns when both servers do."""
        self._thread = threading.Thread(target=self._run, name="receive-servers", daemon=True)
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
        rpc = await Rpc.open(settings, settings.grpc_port, self._policy, self._handler) if settings.grpc_port else None
        try:
            if not settings.http_port:
                self._ready.set()
                await self._closing.wait()
            else:
                await self._serve_web(settings, settings.http_port)
        finally:
            if rpc is not None:
                await rpc.close(_GRACE_SECONDS)

    async def _serve_web(self, settings: ReceiveSettings, port: int) -> None:
        listener = listen(settings.host, port, _MEND)
        tls = None if settings.tls is None else Certificate(settings.tls.certificate, settings.tls.key)
        server = WebServer(access_controlled(self._handler, self._policy), listener, self._policy.limits, tls)
        serving = asyncio.create_task(server.serve())
        assert self._closing is not None
        closing = asyncio.create_task(self._closing.wait())
        self._ready.set()  # what comes before the server is up waits at the listener
        await asyncio.wait([serving, closing], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        closing.cancel()
        await serving


class Rpc:
    """gRPC's server, and the relay in front of it."""

    def __init__(self, server: Any, relay: Relay) -> None:
        self._server = server
        self._relay = relay

    @classmethod
    async def open(cls, settings: ReceiveSettings, port: int, policy: Policy, handler: RequestHandler) -> Rpc:
        """Listen at ``port``; UserError where it is taken, or the certificate of no use."""
        relay = Relay(listen(settings.host, port, _MEND), policy.limits, tls=settings.tls is not None)
        try:
            server = grpc.aio.server(
                options=options(
                    policy.limits,
                    message_bytes=settings.max_request_bytes,
                    streams=min(STREAMS, settings.max_pending),
                ),
                maximum_concurrent_rpcs=2 * settings.max_pending + 100,
            )
            server.add_generic_rpc_handlers((service(handler, settings, policy.token, relay.place),))
            if settings.tls is None:
                server.add_insecure_port(relay.address)
            else:
                server.add_secure_port(relay.address, _credentials(settings.tls))
            await server.start()
        except RuntimeError:
            await relay.close()
            raise UserError(
                "gRPC cannot be offered: its certificate is of no use, or the path of temporary files is too long",
                "fix certificate and key, or set TMPDIR",
            ) from None
        except BaseException:
            await relay.close()
            raise
        relay.start()
        return cls(server, relay)

    async def close(self, grace_seconds: float) -> None:
        """Finish what is being answered, for ``grace_seconds`` at most."""
        await self._server.stop(grace_seconds)
        await self._relay.close()


def _credentials(tls: ReceiveTls) -> grpc.ServerCredentials:
    try:
        pair = (tls.key.expanduser().read_bytes(), tls.certificate.expanduser().read_bytes())
    except OSError as error:
        raise UserError(f"the receiver's certificate cannot be used: {error}", "fix certificate and key") from None
    return grpc.ssl_server_credentials([pair])
