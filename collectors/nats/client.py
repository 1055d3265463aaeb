"""Talking to a NATS server: the only place that knows the client library. No judgement, only I/O."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import nats
from nats.aio.client import Client as Connection
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, Error, NoRespondersError

from collectors.base import ConnectionLost, CredentialsRefused
from collectors.nats.settings import NatsBroker
from lake.errors import SojournError, UserError

#: Messages asked for at once; the server sends them as they come.
PULL = 4096
_PULL_EXPIRES = 5.0


class ApiError(ConnectionLost):
    """JetStream refused a request, for now; ``code`` is its error code."""

    def __init__(self, subject: str, code: int, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(f"JetStream refused {subject}: {description} ({code})")


NO_STREAM, NO_CONSUMER, NO_MESSAGE = 10059, 10014, 10037


class Message(NamedTuple):
    """One message of a stream as it was delivered; times in microseconds on the broker's clock."""

    sequence: int
    stored_at: int
    pending: int
    subject: str
    headers: Mapping[str, str] | None
    data: bytes


class Client:
    """One connection to one server. It does not mend itself: whoever uses it opens another."""

    def __init__(self, broker: NatsBroker, purpose: str) -> None:
        self._broker = broker
        self._purpose = purpose
        self._connection: Connection | None = None
        self._last_error: Exception | None = None

    async def open(self, timeout: float = 3.0) -> None:
        """Connect; ConnectionLost if nobody answers, CredentialsRefused or UserError if we are not served."""
        await self.close()
        broker = self._broker
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
        name, url = self._broker.name, self._broker.url
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
            raise ConnectionLost(f"the connection to broker {self._broker.name!r} is lost")
        return self._connection

    async def api(self, subject: str, body: Any = None, timeout: float = 3.0) -> dict[str, Any]:
        """The answer of JetStream's API; ApiError where it refuses, ConnectionLost where it does not answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            reply = await self.connection.request(f"$JS.API.{subject}", payload, timeout=timeout)
        except NoRespondersError:
            raise UserError(
                f"broker {self._broker.name!r} at {self._broker.url} has no JetStream for this account",
                "start the server with -js, or use an account that has it",
            ) from None
        except (Error, OSError, TimeoutError) as error:
            why = str(error).strip() or type(error).__name__
            raise ConnectionLost(f"broker {self._broker.name!r} does not answer {subject}: {why}") from None
        answer: dict[str, Any] = json.loads(reply.data)
        if "error" in answer:
            error_body = answer["error"]
            raise ApiError(subject, error_body.get("err_code", 0), error_body.get("description", ""))
        return answer


class Reader:
    """Reads a stream in order from a sequence on, through a consumer of its own that leaves no trace.

    Nothing is acknowledged at the broker: how far we read is known to whoever stores what was read.
    """

    def __init__(self, client: Client, stream: str, start: int) -> None:
        self._client = client
        self._stream = stream
        self._next = max(1, start)
        self._consumer = ""
        self._inbox = ""
        self._arrived: list[tuple[int, Message]] = []  # with the consumer's own numbering, which has no holes
        self._enough = asyncio.Event()
        self._pulls: dict[str, int] = {}  # messages still owed to each request, the oldest first
        self._requests = 0
        self._delivered = 0
        self._heard = 0.0
        self._broken = False
        self._subscription: Any = None

    async def open(self) -> None:
        """Make the consumer and ask for the first messages."""
        await self.close()
        connection = self._client.connection
        config = {
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next,
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 30_000_000_000,
        }
        body = {"stream_name": self._stream, "config": config}
        answer = await self._client.api(f"CONSUMER.CREATE.{self._stream}", body)
        self._consumer = str(answer["name"])
        self._inbox = str(connection.new_inbox())
        self._arrived.clear()
        self._pulls.clear()
        self._delivered, self._broken = 0, False
        self._heard = time.monotonic()
        self._subscription = await connection.subscribe(
            f"{self._inbox}.*", cb=self._take, pending_msgs_limit=16 * PULL, pending_bytes_limit=256 << 20
        )
        await self._ask()

    async def close(self) -> None:
        """Give the consumer up."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.unsubscribe()
            await self._client.api(f"CONSUMER.DELETE.{self._stream}.{self._consumer}", timeout=1.0)
        except (SojournError, Error):
            pass  # the broker forgets it by itself

    async def fetch(self, wait: float) -> list[Message]:
        """What arrives within ``wait`` seconds, in order. A hole in its sequences is one that the stream itself has."""
        self._enough.clear()
        if len(self._arrived) < PULL:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), wait)
        arrived, self._arrived = self._arrived, []
        messages = []
        for number, message in arrived:
            if number != self._delivered + 1:
                self._broken = True  # lost on the way: a slow connection's buffer overflowed
                break
            self._delivered = number
            messages.append(message)
        if messages:
            self._next = messages[-1].sequence + 1
        if self._broken or time.monotonic() - self._heard > 3 * _PULL_EXPIRES:
            await self.open()
        else:
            await self._ask()
        return messages

    async def _ask(self) -> None:
        """Keep at least half a pull owed to us, unless what came is not taken from us."""
        if sum(self._pulls.values()) > PULL // 2 or len(self._arrived) > 2 * PULL:
            return
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        self._pulls[inbox] = PULL
        request = json.dumps({"batch": PULL, "expires": int(_PULL_EXPIRES * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        try:
            await self._client.connection.publish(subject, request, reply=inbox)
        except (Error, OSError) as error:
            raise ConnectionLost(f"the tap cannot be read: {error}") from None

    async def _take(self, message: Msg) -> None:
        self._heard = time.monotonic()
        tokens = message.reply.split(".")
        if len(tokens) < 9:
            self._status(message)
            return
        if len(tokens) > 9:  # a domain and an account stand in front
            tokens = tokens[2:]
        oldest = next(iter(self._pulls), None)
        if oldest is not None:
            self._pulls[oldest] -= 1
            if self._pulls[oldest] <= 0:
                del self._pulls[oldest]
                if len(self._pulls) == 0:
                    with suppress(ConnectionLost):  # told again by the next fetch
                        await self._ask()
        stored_at, pending = int(tokens[7]) // 1000, int(tokens[8])
        self._arrived.append(
            (
                int(tokens[6]),
                Message(int(tokens[5]), stored_at, pending, message.subject, message.headers, message.data),
            )
        )
        if len(self._arrived) >= PULL:
            self._enough.set()

    def _status(self, message: Msg) -> None:
        """A request is over before it was filled; or the consumer is gone."""
        self._pulls.pop(message.subject, None)
        if (message.headers or {}).get("Status") == "409":
            self._broken = True
