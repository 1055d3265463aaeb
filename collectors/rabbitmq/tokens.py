"""OAuth 2 access tokens for the management API (RFC 6750): where they stand, or fetched by client credentials."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import httpx
from pydantic_core import from_json

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.settings import ClientCredentials
from lake.errors import first_line

#: A token is fetched anew when so much of its time is over; one that tells no time, after so many seconds.
_SHARE, _UNTOLD_SECONDS = 0.8, 60.0
_MOST_BYTES = 1 << 20


class Bearer(httpx.Auth):
    """Shows the token that ``token`` returns; once more, with what ``again`` returns, where that is refused."""

    def __init__(self, token: Callable[[], str], again: Callable[[], str] | None = None) -> None:
        self._token, self._again = token, again

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header."""
        request.headers["Authorization"] = f"Bearer {self._token()}"
        answer = yield request
        if answer.status_code == httpx.codes.UNAUTHORIZED and self._again is not None:
            request.headers["Authorization"] = f"Bearer {self._again()}"
            yield request


class Tokens:
    """Tokens for ``whom`` (words for messages) by OAuth 2's client credentials (RFC 6749, section 4.4).

    Blocks; belongs to one thread at a time. Never shows a secret or a token. ``clock`` tells seconds.
    """

    def __init__(
        self, settings: ClientCredentials, whom: str, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._whom, self._timeout, self._clock = settings, whom, timeout, clock
        self._secret = settings.client_secret.read(f"the client secret of {whom}")
        self._token, self._until = "", float("-inf")

    def token(self) -> str:
        """The token, fetched where there is none that is good for a while; ConnectionLost, CredentialsRefused."""
        return self._token if self._clock() < self._until else self.fetch()

    def fetch(self) -> str:
        """A new token."""
        settings = self._settings
        form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
        try:
            answer = httpx.post(
                settings.token_url,
                data=form,
                auth=httpx.BasicAuth(settings.client_id, self._secret),
                headers={"Accept": "application/json"},
                timeout=self._timeout,
                follow_redirects=False,
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ConnectionLost(
                f"the token endpoint {settings.token_url} of {self._whom} cannot be reached: {first_line(error)}"
            ) from None
        told = _object(answer.content)
        if answer.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            why = str(told.get("error") or f"HTTP {answer.status_code}")[:200].replace("\n", " ")
            raise CredentialsRefused(
                f"the token endpoint {settings.token_url} of {self._whom} refuses us: {why}",
                "check oauth.client_id, client_secret and scope",
            )
        token, lifetime = told.get("access_token"), told.get("expires_in")
        if answer.status_code != httpx.codes.OK or not isinstance(token, str) or not token.isascii() or not token:
            status = answer.status_code
            raise ConnectionLost(
                f"the token endpoint {settings.token_url} of {self._whom} answers HTTP {status}: no token"
            )
        seconds = _UNTOLD_SECONDS
        if isinstance(lifetime, int | float) and lifetime > 0:
            seconds = _SHARE * lifetime
        self._until = self._clock() + seconds
        self._token = token
        return token


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = from_json(body[:_MOST_BYTES])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
