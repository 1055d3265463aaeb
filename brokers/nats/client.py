"""Talking to a NATS server: the only place that knows the client library. No judgement, only I/O."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from nats.aio.client import Client as Connection
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import AuthorizationError, Error, NoRespondersError

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.nats import credentials
from brokers.nats.settings import NatsServer
from brokers.nats.wire import Frame, Frames
from lake.errors import SojournError, UserError


class ApiError(ConnectionLost):
    """JetStream refused a request, for now; ``code`` is its error code."""

    def __init__(self, subject: str, code: int, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(f"JetStream refused {subject}: {description} ({code})")


NO_STREAM, NO_CONSUMER, NO_MESSAGE = 10059, 10014, 10037
#: Requests of :meth:`Client.many` that are under way at once.
_UNDER_WAY = 256


class Request(NamedTuple):
    """One of many requests; ``headers`` is a mapping, or whatever has its ``items``."""

    subject: str
    payload: bytes
    headers: Any = None


def no_jetstream(broker: NatsServer) -> UserError:
    """Nobody serves the API's subjects."""
    return UserError(
        f"broker {broker.name!r} at {broker.url} has no JetStream for this account"
        + (f" in domain {broker.domain!r}" if broker.domain else ""),
        "start the server with -js, or use an account (and a domain) that has it",
    )


class _OverTls(Connection):
    """A connection that says nothing, credentials least of all, to a server that would not encrypt it."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not info.get("tls_required"):
            raise Error("the server does not ask for TLS, which the settings enable")
        await super()._process_info(info, initial_connection=initial_connection)


def _options(broker: NatsServer) -> dict[str, Any]:
    """How to connect: encryption, and who we are. UserError where a file or secret cannot be used."""
    options: dict[str, Any] = {"tls": broker.tls.context()}
    if broker.user is not None:
        options["user"] = broker.user
    if broker.password is not None:
        options["password"] = broker.password.read(f"the password of broker {broker.name!r}")
    if broker.token is not None:
        options["token"] = broker.token.read(f"the token of broker {broker.name!r}")
    if broker.credentials is not None:
        what = f"the credentials of broker {broker.name!r}"
        held = credentials.read(broker.credentials.read(what), what)
        options["user_jwt_cb"] = held.jwt.encode
        options["signature_cb"] = lambda nonce: base64.b64encode(credentials.sign(held.seed, nonce.encode()))
    if broker.nkey is not None:
        what = f"the nkey of broker {broker.name!r}"
        key = credentials.nkey(broker.nkey.read(what), what)
        options["signature_cb"] = lambda nonce: base64.b64encode(credentials.sign(key.seed, nonce.encode()))
    return options


class Client:
    """One connection to one server. It does not reconnect by itself: whoever uses it opens another."""

    def __init__(self, broker: NatsServer, purpose: str) -> None:
        self.broker = broker
        self._purpose = purpose
        self._connection: Connection | None = None
        self._last_error: Exception | None = None
        self._urls = list(broker.urls)  # the one that answered last stands first

    async def open(self, timeout: float = 3.0) -> None:
        """Connect to the first server that answers, each within ``timeout`` seconds.

        ConnectionLost if none answers, CredentialsRefused or UserError if we are not served.
        """
        lost: list[ConnectionLost] = []
        for url in list(self._urls):
            try:
                await self._open(url, timeout)
            except ConnectionLost as error:
                lost.append(error)
            else:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return
        raise lost[0] if len(lost) == 1 else ConnectionLost("; ".join(map(str, lost)))

    async def _open(self, url: str, timeout: float) -> None:
        await self.close()
        broker = self.broker
        options = _options(broker)
        connection: Connection = Connection() if options.get("tls") is None else _OverTls()
        if broker.nkey is not None:
            what = f"the nkey of broker {broker.name!r}"
            connection._public_nkey = credentials.nkey(broker.nkey.read(what), what).public  # the library has no option
        self._last_error = None
        try:
            await asyncio.wait_for(
                connection.connect(
                    url,
                    name=f"sojourn {self._purpose}",
                    allow_reconnect=False,
                    connect_timeout=max(1, round(timeout)),
                    error_cb=self._note,
                    **options,
                ),
                timeout,
            )
        except BaseException as error:
            told = self._last_error or error
            # The library leaves the socket of an attempt that failed open, and a task that reads from it.
            self._connection = connection
            await self.close()
            if isinstance(error, (Error, OSError, TimeoutError, ValueError)):
                raise self._explained(told, url) from None
            raise
        self._connection = connection

    async def _note(self, error: Exception) -> None:
        self._last_error = error

    def _explained(self, error: BaseException, url: str) -> SojournError:
        name = self.broker.name
        text = str(error).lower()
        if isinstance(error, AuthorizationError) or "authorization" in text or "authentication" in text:
            return CredentialsRefused(
                f"broker {name!r} at {url} refuses the credentials",
                "check user, password, token, nkey or credentials in [[collect.brokers]]",
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

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Leave what comes in the socket meanwhile, so that many small pieces are read as one; answers wait as well.

        Without effect where the library still has to hand on what it read, or does not speak TCP itself.
        """
        transport = self.connection._transport
        library: Any = transport  # asyncio's streams have no public names in it
        if not isinstance(transport, TcpTransport) or library._io_reader._paused:  # which resumes by itself
            yield
            return
        socket = library._io_writer.transport
        socket.pause_reading()
        try:
            yield
        finally:
            socket.resume_reading()

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

    async def answers(self, timeout: float) -> bool:
        """Whether the server that we are connected to is there: it answers a ping within ``timeout`` seconds."""
        try:
            await self.connection.flush(max(1, round(timeout)))
        except (ConnectionLost, Error, OSError, TimeoutError):
            return False
        return True

    async def api(self, subject: str, body: Any = None, timeout: float = 3.0) -> dict[str, Any]:
        """The answer of JetStream's API; ApiError where it refuses, ConnectionLost where it does not answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            reply = await self.connection.request(f"{self.broker.api}.{subject}", payload, timeout=timeout)
        except NoRespondersError:
            raise no_jetstream(self.broker) from None
        except (Error, OSError, TimeoutError) as error:
            raise self.silent(subject, error) from None
        return accepted(subject, json.loads(reply.data))

    async def many(self, requests: Sequence[Request], timeout: float = 5.0) -> list[dict[str, Any]]:
        """The answers to ``requests`` in their order, a refusal as it came; see :func:`accepted`.

        They are sent in their order, some hundreds before the first answer is there: a round trip is paid once, and
        not once a message. ConnectionLost where one has no answer ``timeout`` seconds after the one before.
        """
        connection, answers = self.connection, [b""] * len(requests)
        left, came, refused = set[int](), asyncio.Event(), list[str]()
        inbox = connection.new_inbox()

        async def take(message: Any) -> None:
            index = int(message.subject.rpartition(".")[2])
            if not message.data and (message.headers or {}).get("Status") == "503":
                refused.append(requests[index].subject)
            answers[index] = message.data
            left.discard(index)
            came.set()

        subscription = await connection.subscribe(f"{inbox}.*", cb=take)
        index = 0
        try:
            for index, request in enumerate(requests):
                left.add(index)
                await connection.publish(request.subject, request.payload, f"{inbox}.{index}", request.headers)
                while len(left) >= _UNDER_WAY:
                    await self._one_more(came, timeout)
            while left:
                await self._one_more(came, timeout)
        except (Error, OSError, TimeoutError) as error:
            raise self.silent(requests[min(left, default=index)].subject, error) from None
        finally:
            with suppress(Error, OSError):
                await subscription.unsubscribe()
        if refused:
            raise ConnectionLost(f"broker {self.broker.name!r} has nobody who answers {refused[0]}")
        return [json.loads(answer) for answer in answers]

    async def _one_more(self, came: asyncio.Event, timeout: float) -> None:
        self.connection  # noqa: B018 – lost, it would answer nothing for the whole of the time-out
        came.clear()
        await asyncio.wait_for(came.wait(), timeout)


def accepted(subject: str, answer: dict[str, Any]) -> dict[str, Any]:
    """``answer``; ApiError where it is JetStream's refusal of a request to ``subject``."""
    if "error" in answer:
        error = answer["error"]
        raise ApiError(subject, error.get("err_code", 0), error.get("description", ""))
    return answer
