"""Signing in leads back to the page that was asked for: Streamlit leads home, and an alert's link would be lost.

Where a sign-in begins, the browser says on which page (``Referer``); that is kept in a cookie until the provider sends
the browser back. Nothing but a path on this very server is ever kept, or led to.
"""

from __future__ import annotations

import re
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, unquote, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.settings import CALLBACK

LOGIN = "/auth/login"
COOKIE = "sojourn_asked_for"
#: A sign-in that takes longer leads home.
SECONDS = 900
_LONGEST = 2000
#: A path on this server: no second slash nor backslash, which browsers would read as another host.
_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")
_NOT_PAGES = (LOGIN, CALLBACK, "/auth/", "/_stcore")


class Returning:
    """``app``, whose sign-in ends at the page on which it began."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"] not in (LOGIN, CALLBACK):
            await self._app(scope, receive, send)
            return
        told = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        begins = scope["path"] == LOGIN
        page = _begun_on(told) if begins else _kept(told)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not begins and page:
                    home = (b"location", b"/")
                    headers = [
                        (b"location", page.encode("ascii")) if (name.lower(), value) == home else (name, value)
                        for name, value in headers
                    ]
                kept = f"{quote(page, safe='')}; Max-Age={SECONDS}" if begins and page else "; Max-Age=0"
                cookie = f"{COOKIE}={kept}; Path=/; HttpOnly; SameSite=Lax"
                message = {**message, "headers": [*headers, (b"set-cookie", cookie.encode("ascii"))]}
            await send(message)

        await self._app(scope, receive, sent)


def _begun_on(told: dict[bytes, str]) -> str:
    """The page of this server on which the request was made; empty where none is told."""
    try:
        parts = urlsplit(told.get(b"referer", ""))
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or parts.netloc != told.get(b"host"):
        return ""
    return _checked(parts.path + (f"?{parts.query}" if parts.query else ""))


def _kept(told: dict[bytes, str]) -> str:
    try:
        found = SimpleCookie(told.get(b"cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return _checked(unquote(found.value)) if found is not None else ""


def _checked(page: str) -> str:
    """``page`` if it is one of this server; else empty."""
    fits = len(page) <= _LONGEST and _PATH.fullmatch(page) and not page.startswith(_NOT_PAGES)
    return page if fits else ""
