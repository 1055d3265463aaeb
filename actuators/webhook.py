"""``kind = "webhook"``: any server with a resource for each limit: PUT sets it, GET tells it, DELETE takes it away."""

from __future__ import annotations

import json
from typing import ClassVar, Literal
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator

from actuators.base import ActuatorSettings, Demand, Refused, filled, refuse_other
from brokers.http import Response, ask
from brokers.settings import Tls, without_secrets
from lake.errors import SojournError
from lake.secret import Secret


class WebhookSettings(ActuatorSettings):
    """The resource's address; its content is the limit as ``GET /v1/limits`` has it. 404 tells that there is none."""

    kind: Literal["webhook"] = "webhook"
    url: str = Field(description="https://…/{broker}/{queue}/{tenant}: the parts are replaced, percent-encoded")
    token: Secret | None = Field(default=None, description="sent as a bearer token")
    tls: Tls = Tls()

    @field_validator("url")
    @classmethod
    def _of_one_tenant(cls, url: str) -> str:
        parts = urlsplit(without_secrets(url))
        if parts.scheme not in ("http", "https") or not parts.hostname or "{" in parts.netloc:
            raise ValueError("an address is https://host/…")
        if "{tenant}" not in url:
            raise ValueError("the address needs {tenant}: each tenant's limit is a resource of its own")
        return url


class Webhook:
    """Puts, gets and deletes resources."""

    ends_by_itself: ClassVar[bool] = False
    slows_consumers: ClassVar[bool] = False

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings

    def place(self, demand: Demand) -> str:
        """The address."""
        return filled(self._settings.url, demand, lambda part: quote(part, safe=""))

    def value(self, demand: Demand) -> str:
        """The limit as JSON."""
        return demand.document()

    def read(self, place: str) -> str | None:
        """The resource's content."""
        answer = self._asked("GET", place)
        if answer.status == 404:
            return None
        try:
            found = json.loads(answer.body)
        except ValueError:
            raise SojournError(f"{place} tells a limit that is no JSON") from None
        return json.dumps(found, sort_keys=True)

    def check(self, before: str | None, value: str) -> None:
        """What stands there already is somebody else's."""
        refuse_other(before)

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Put it, or delete it."""
        self._asked("DELETE" if value is None else "PUT", place, None if value is None else value.encode())

    def _asked(self, method: str, url: str, body: bytes | None = None) -> Response:
        settings, headers = self._settings, {"Content-Type": "application/json"}
        if settings.token is not None:
            headers["Authorization"] = "Bearer " + settings.token.read(f"the token of {settings.name!r}")
        context = settings.tls.context()
        answer = ask(method, url, body=body, headers=headers, context=context, timeout=settings.timeout)
        if 200 <= answer.status < 300 or (answer.status == 404 and method != "PUT"):
            return answer
        said = answer.body[:200].decode("utf-8", "replace").strip()
        if 400 <= answer.status < 500 and answer.status not in (408, 429):
            raise Refused(f"{url} refuses {method} ({answer.status}): {said}")
        raise SojournError(f"{url} answers {method} with HTTP {answer.status}: {said}")
