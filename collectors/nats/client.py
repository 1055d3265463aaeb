"""Talking to a NATS server: the only place that knows the client library. No judgement, only I/O."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import nats
from nats.aio.client import Client as Connection
from nats.aio.subscription import Subscription
from nats.errors import AuthorizationError, Error, NoRespondersError

from collectors.base import ConnectionLost, CredentialsRefused
from collectors.nats.settings import NatsBroker
from collectors.nats.wire import Frame, Frames
from lake.errors import SojournError, UserError


class ApiError(ConnectionLost):
    """JetStream refused a request, for now; ``code`` is its error code."""

    def __init__(self, subject: str, code: int, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(f"JetStream refused {subject}: {description} ({code})")


NO_STREAM, NO_CONSUMER, NO_MESSAGE = 10059, 10014, 10037


def no_jetstream(broker: NatsBroker) -> UserError:
    """Nobody serves the API's subjects."""
    return UserError(
        f"broker {broker.name!r} at {broker.url} has no JetStream for this account",
        "start the server with -js, or use an account that has it",
    )


class Client:
    """One connection to one server. It does not mend itself: whoever uses it opens another."""

    def __init__(self, broker: NatsBroker, purpose: str) -> None:
        self.broker = broker
        self._purpose = purpose
        self._connection: Connection | None = None
        self._last_error: Exception | None = None

    async def open(self, timeout: float = 3.0) -> None:
        """Connect; ConnectionLost if nobody answers, CredentialsRefused or UserError if we are not served."""
        await self.close()
        broker = self.broker
        options: dict[str, Any] = {}
        if broker.user is not None:
            options["user"] = broker.user
        if broker.password is not None:
            options["password"] = broker.password.read(f"the password of broker {broker.name!r}")
        if broker.token is not None:
            options["token"] = broker.token.read(f"the token of broker {broker.name!r}")
        self._last_error = None
        try:
            connection = await asyncio.wait_for(
                nats.connect(
                    broker.url,
                    name=f"sojourn {self._purpose}",
                    allow_reconnect=False,
                    connect_timeout=max(1, round(timeout)),
                    error_cb=self._note,
                    **options,
                ),
                timeout,
            )
        except (Error, OSError, TimeoutError, ValueError) as error:
            raise self._explained(self._last_error or error) from None
        self._connection = connection

    async def _note(self, error: Exception) -> None:
        self._last_error = error

    def _explained(self, error: Exception) -> SojournError:
        name, url = self.broker.name, self.broker.url
        text = str(error).lower()
        if isinstance(error, AuthorizationError) or "authorization" in text or "authentication" in text:
            return CredentialsRefused(
                f"broker {name!r} at {url} refuses the credentials",
                "check user, password or token in [[collect.brokers]]",
            )
        why = str(error).strip() or type(error).__name__
        return ConnectionLost(f"broker {name!r} at {url} cannot be reached: {why}")

    async def close(self) -> None:
        """Disconnect; does nothing if there is no connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Error, OSError, TimeoutError):
                await asyncio.wait_for(connection.close(), 2.0)

    @property
    def connection(self) -> Connection:
        """The open connection; ConnectionLost if there is none any more."""
        if self._connection is None or not self._connection.is_connected:
            raise ConnectionLost(f"the connection to broker {self.broker.name!r} is lost")
        return self._connection

    def divert(self, subscription: Subscription, take: Callable[[list[Frame]], None]) -> None:
        """Let ``take`` have the frames of ``subscription`` as they come, past the library's own queue."""
        connection: Any = self.connection  # its parser has no public name
        if isinstance(connection._ps, Frames):
            connection._ps.divert(subscription._id, take)
        else:
            connection._ps = Frames(connection._ps, subscription._id, take)

    def silent(self, subject: str, error: Exception) -> SojournError:
        """Why a request was not answered: the broker is away, or does not allow it (it then tells that apart)."""
        refused = self._last_error
        if refused is not None and "permissions violation" in str(refused).lower():
            return CredentialsRefused(
                f"broker {self.broker.name!r} does not allow {subject}: {refused}",
                "give this user the permissions that docs/brokers/nats.md lists",
            )
        why = str(error).strip() or type(error).__name__
        return ConnectionLost(f"broker {self.broker.name!r} does not answer {subject}: {why}")

    async def api(self, subject: str, body: Any = None, timeout: float = 3.0) -> dict[str, Any]:
        """The answer of JetStream's API; ApiError where it refuses, ConnectionLost where it does not answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            reply = await self.connection.request(f"$JS.API.{subject}", payload, timeout=timeout)
        except NoRespondersError:
            raise no_jetstream(self.broker) from None
        except (Error, OSError, TimeoutError) as error:
            raise self.silent(subject, error) from None
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" in answer:
            error_body = answer["error"]
            raise ApiError(subject, error_body.get("err_code", 0), error_body.get("description", ""))
        return answer
