"""Streamlit's page told where its server's root is.

Opened at the address of a page, ``/alerts``, its script asks for the server at ``/alerts/_stcore/health`` first, and
only then at the root: two errors in the console of whoever follows a link. It takes an address that it is told instead.
"""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TOLD = b'<head><script>window.__streamlit={BACKEND_BASE_URL:location.origin+"/"}</script>'
_UNTRUE = (b"content-length", b"etag", b"last-modified")


class Rooted:
    """``app`` with the root told in each HTML page that it sends; everything else passes as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        asked = dict(scope.get("headers", ()))
        if scope["type"] != "http" or b"text/html" not in asked.get(b"accept", b""):
            await self._app(scope, receive, send)
            return
        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        start: dict[str, Any] | None = None
        body = b""

        async def sent(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_page(message):
                start = dict(message)
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body"):
                    told = body.replace(b"<head>", _TOLD, 1) if scope["method"] != "HEAD" else body
                    headers = [(name, value) for name, value in start["headers"] if name.lower() not in _UNTRUE]
                    length = [(b"content-length", str(len(told)).encode())] if scope["method"] != "HEAD" else []
                    await send({**start, "headers": [*headers, *length]})
                    await send({"type": "http.response.body", "body": told})

        await self._app({**scope, "headers": plain}, receive, sent)


def _is_page(start: Message) -> bool:
    headers = {name.lower(): value for name, value in start.get("headers", ())}
    return headers.get(b"content-type", b"").startswith(b"text/html") and b"content-encoding" not in headers
