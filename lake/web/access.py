"""Access control as ASGI: refuses by headers, then reads the body within its limits, then lets the application see it.

Web pages of other origins are never let in, so no answer carries a CORS header.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lake.web.body import BodyReader, Gone, announced
from lake.web.budget import Holding
from lake.web.policy import Limits, Policy, Refusal, check_content_type, content_type

#: Where the scope's state holds the connection's :class:`~lake.web.connections.Connection`, if there is one.
CONNECTION = "sojourn.connection"
#: What a web page calls the scheme of the server that its websocket comes from.
_PAGES = {"ws": "http", "wss": "https"}


class AccessControl:
    """``app`` behind ``policy``: it sees only requests that may come, with their whole body, unpacked."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy
        self._bodies = BodyReader(policy.limits)

    @property
    def limits(self) -> Limits:
        """What its listener may cost."""
        return self._policy.limits

    @property
    def bytes_in_flight(self) -> tuple[int, int]:
        """Bytes of bodies that are held now, and the most that were."""
        return self._bodies.budget.held, self._bodies.budget.highest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._upgraded(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("access control serves HTTP and websockets alone")
        try:
            body, holding = await self._let_in(scope, receive)
        except Gone:
            return
        except Refusal as refusal:
            answer = self._policy.refusal(scope, refusal)
            if refusal.status == 401:
                answer.headers["WWW-Authenticate"] = "Bearer"
            if refusal.retry_seconds is not None:
                answer.headers["Retry-After"] = str(refusal.retry_seconds)
            await answer(scope, receive, send)
            return
        try:
            await self._app(_unpacked(scope, len(body)), _once(body, receive), send)
        finally:
            holding.release()

    async def _upgraded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A websocket, refused by its handshake's headers or the application's to speak."""
        try:
            self._policy.check(scope["path"], _PAGES[scope["scheme"]], scope["headers"])
        except Refusal:
            await send({"type": "websocket.close"})  # before it was accepted: 403
            return
        _prove(scope)
        await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive) -> tuple[bytes, Holding]:
        headers = scope["headers"]
        entrance = self._policy.check(scope["path"], scope["scheme"], headers)
        _prove(scope)
        has_body = announced(headers) != 0
        check_content_type(entrance, content_type(headers), has_body)
        return await self._bodies.read(receive, headers)


def _prove(scope: Scope) -> None:
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.proven()


def _once(body: bytes, receive: Receive) -> Receive:
    """A receive that gives ``body`` at once, then whatever comes: that the peer went away."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _unpacked(scope: Scope, length: int) -> Scope:
    """``scope`` as if the body had come unpacked."""
    encoded = (b"content-encoding", b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name not in encoded]
    return {**scope, "headers": [*kept, (b"content-length", str(length).encode())]}
