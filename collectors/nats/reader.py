"""Reading a stream in order from a sequence on, many thousands of messages a second."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any, NamedTuple

from nats.errors import Error

from brokers.errors import ConnectionLost
from brokers.nats.client import Client
from brokers.nats.wire import Frame
from lake.errors import SojournError

#: Messages asked for at once; the server sends them as they come.
PULL = 2048
_PULL_EXPIRES = 5.0
#: Where so few came at a time, what comes next is left in the socket until all of it is wanted: each piece by itself
#: costs several turns of the event loop, however small. More than these must not wait behind a full socket.
_FEW = 200
#: How long what was left there may take to be read, if there is any (seconds).
_SOON = 0.005


class Message(NamedTuple):
    """One message of a stream as it was delivered; ``headers`` is the whole block, empty where there is none.

    ``stored_at`` is in microseconds on the broker's clock; ``pending`` messages stood behind it.
    """

    sequence: int
    stored_at: int
    pending: int
    subject: bytes
    headers: bytes
    data: bytes


class Reader:
    """Reads a stream through a consumer of its own that leaves no trace; it alone uses ``client`` to subscribe.

    Nothing is acknowledged at the broker: how far we read is known to whoever stores what was read.
    """

    def __init__(self, client: Client, stream: str, start: int) -> None:
        self._client = client
        self._stream = stream
        self._next = max(1, start)
        self._consumer = ""
        self._inbox = ""
        self._arrived: list[Message] = []
        self._enough = asyncio.Event()
        self._worth = PULL  # so many are enough
        self._few = False  # whether few came last
        self._pulls: dict[str, int] = {}  # messages still owed to each request, the oldest first
        self._requests = 0
        self._taken = 0  # the consumer's own numbering, which has no holes
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
        self._taken, self._broken = 0, False
        self._heard = time.monotonic()
        self._subscription = await connection.subscribe(f"{self._inbox}.*", cb=_never)
        self._client.divert(self._subscription, self._take)
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

    async def wait(self, seconds: float) -> None:
        """Let messages come for ``seconds``, or until there are many."""
        self._enough.clear()
        self._worth = PULL
        if self._few and not self._arrived:
            with self._client.unread():
                await asyncio.sleep(seconds)
            self._worth, seconds = 1, _SOON
        if len(self._arrived) < self._worth:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), seconds)

    async def take(self) -> list[Message]:
        """What has come, in order. A hole in its sequences is one that the stream itself has."""
        arrived, self._arrived = self._arrived, []
        self._few = len(arrived) <= _FEW
        if arrived:
            self._next = arrived[-1].sequence + 1
        if self._broken or time.monotonic() - self._heard > 3 * _PULL_EXPIRES:
            await self.open()
        else:
            await self._ask()
        return arrived

    async def _ask(self) -> None:
        """Keep at least a pull owed to us, unless what came is not taken from us."""
        while sum(self._pulls.values()) <= PULL and len(self._arrived) <= PULL:
            self._requests += 1
            inbox = f"{self._inbox}.{self._requests}"
            self._pulls[inbox] = PULL
            request = json.dumps({"batch": PULL, "expires": int(_PULL_EXPIRES * 1e9)}).encode()
            subject = f"{self._client.broker.api}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            try:
                await self._client.connection.publish(subject, request, reply=inbox)
            except (Error, OSError) as error:
                raise ConnectionLost(f"the tap cannot be read: {error}") from None

    def _take(self, frames: list[Frame]) -> None:
        """Called with what the connection received, in order."""
        self._heard = time.monotonic()
        arrived, counted = self._arrived, len(self._arrived)
        for subject, reply, headers, data in frames:
            tokens = reply.split(b".")
            if len(tokens) < 9:
                self._owe_less(len(arrived) - counted)
                counted = len(arrived)
                self._status(subject.decode(), headers)
                continue
            if len(tokens) > 9:  # a domain and an account stand in front
                tokens = tokens[2:]
            self._taken += 1
            if int(tokens[6]) != self._taken or self._broken:
                self._broken = True  # lost on the way: the next turn reads on from what came before
                return
            arrived.append(Message(int(tokens[5]), int(tokens[7]) // 1000, int(tokens[8]), subject, headers, data))
        self._owe_less(len(arrived) - counted)
        if len(arrived) >= self._worth:
            self._enough.set()

    def _owe_less(self, count: int) -> None:
        while count and self._pulls:
            oldest = next(iter(self._pulls))
            paid = min(count, self._pulls[oldest])
            self._pulls[oldest] -= paid
            count -= paid
            if not self._pulls[oldest]:
                del self._pulls[oldest]

    def _status(self, inbox: str, headers: bytes) -> None:
        """A request is over before it was filled; or the consumer is gone."""
        self._pulls.pop(inbox, None)
        if headers.startswith(b"NATS/1.0 409"):
            self._broken = True


async def _never(message: Any) -> None:
    """Frames of this subscription do not come to the library."""
    raise AssertionError(f"a frame of the tap passed by: {message.subject}")
