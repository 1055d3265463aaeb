"""RabbitMQ's management API, for those who change something there. Blocks."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self
from urllib.parse import quote, urlsplit

import httpx
from pydantic import Field, model_validator

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.http import ask
from brokers.settings import ServerSettings


class RabbitApi(ServerSettings):
    """Where the management API is, and who we are there."""

    default_port: ClassVar[int] = 15672
    name: str = Field(default="rabbitmq", min_length=1)
    url: str = Field(default="http://127.0.0.1:15672", description="the management API")
    timeout: float = Field(default=3.0, gt=0, le=60, description="seconds in which the server must answer")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        scheme = urlsplit(self.url).scheme
        if scheme not in ("http", "https") or (self.tls.enabled and scheme != "https"):
            raise ValueError("the management API is http://host:port, with TLS https://")
        if (self.user is None) != (self.password is None):
            raise ValueError("give user and password together")
        return self


class Forbidden(CredentialsRefused):
    """The node knows us, and does not allow it; or says that it makes no sense."""


def call(api: RabbitApi, method: str, *path: str, body: Any = None) -> Any:
    """What the API answers under ``/api/<path>``; None for nothing, and for what is not there.

    ConnectionLost where the node does not answer, or answers nonsense; Forbidden where it refuses.
    """
    url = f"{api.url.rstrip('/')}/api/" + "/".join(quote(part, safe="") for part in path)
    auth = None
    if api.user is not None and api.password is not None:
        auth = httpx.BasicAuth(api.user, api.password.read(f"the password of {api.name!r}"))
    sent = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    answer = ask(method, url, body=sent, headers=headers, auth=auth, context=api.tls.context(), timeout=api.timeout)
    if answer.status == 404:
        return None
    try:
        found = json.loads(answer.body) if answer.body else None
    except ValueError:
        raise ConnectionLost(f"{url} answers what is no JSON ({answer.status})") from None
    if 400 <= answer.status < 500:
        why = (found.get("reason") or found.get("error")) if isinstance(found, dict) else None
        raise Forbidden(f"{url} refuses ({answer.status}): {str(why)[:200]}", "check the user's tags and permissions")
    if not 200 <= answer.status < 300:
        raise ConnectionLost(f"{url} answers HTTP {answer.status}")
    return found
