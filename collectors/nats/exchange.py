"""Many requests to JetStream at once over one connection: as fast as the server answers, not one round trip each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from nats.errors import Error

from brokers.errors import ConnectionLost
from brokers.nats.client import ApiError, Client, no_jetstream
from brokers.nats.wire import Frame
from lake.errors import UserError

#: Requests under way at once. Measured over 10,000 consumer lists: 16, 64 and 256 differ by a tenth, 1024 is slower.
AT_ONCE = 64
#: A cycle that gets no answer for so long has lost its broker. JetStream itself waits 4 s for the nodes of a cluster.
SILENCE = 8.0

#: Why nothing is known of a stream where the server says that the node which leads it is away.
NO_LEADER = "the node of the cluster that leads the stream does not answer"

#: What JetStream's API answered, or how it refused.
Answer = dict[str, Any] | ApiError


class Exchange:
    """Asks through ``client``; open it again after the client was."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._round = 0
        self._waiting: dict[int, str] = {}  # requests under way: number → subject
        self._answers: list[Answer | UserError | None] = []
        self._heard = asyncio.Event()

    async def open(self) -> None:
        """Listen for answers."""
        connection = self._client.connection
        self._inbox = str(connection.new_inbox())
        try:
            subscription = await connection.subscribe(f"{self._inbox}.>", cb=_never)
        except (Error, OSError) as error:
            raise ConnectionLost(f"the broker takes no subscription: {error}") from None
        self._client.divert(subscription, self._take)

    async def ask(self, requests: Sequence[tuple[str, Any]], *, led: bool = False) -> list[Answer]:
        """The answers to ``requests`` (API subject, body or None), in their order.

        ConnectionLost if the broker falls silent for :data:`SILENCE` seconds. ``led``: they are answered by the node
        that leads the stream, which may be away: where the server itself is there, that is an ApiError of each.
        """
        self._round += 1
        self._waiting.clear()
        self._answers = [None] * len(requests)
        sent = 0
        while sent < len(requests) or self._waiting:
            connection = self._client.connection
            self._heard.clear()
            try:
                while sent < len(requests) and len(self._waiting) < AT_ONCE:
                    subject, body = requests[sent]
                    self._waiting[sent] = subject
                    payload = b"" if body is None else json.dumps(body).encode()
                    reply = f"{self._inbox}.{self._round}.{sent}"
                    await connection.publish(f"{self._client.broker.api}.{subject}", payload, reply=reply)
                    sent += 1
                await asyncio.wait_for(self._heard.wait(), SILENCE)
            except (Error, OSError, TimeoutError) as error:
                trouble = self._client.silent(next(iter(self._waiting.values()), "requests"), error)
                if not led or isinstance(trouble, UserError) or not await self._client.answers(SILENCE):
                    raise trouble from None
                for number, subject in self._waiting.items():
                    self._answers[number] = ApiError(subject, 0, NO_LEADER)
                self._waiting.clear()
        answers: list[Answer] = []
        for answer in self._answers:
            if isinstance(answer, UserError):
                raise answer
            assert answer is not None
            answers.append(answer)
        return answers

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            *_, asked_in, number = frame.subject.rsplit(b".", 2)
            subject = self._waiting.pop(int(number), None) if int(asked_in) == self._round else None
            if subject is not None:
                self._answers[int(number)] = self._read(subject, frame)
        self._heard.set()

    def _read(self, subject: str, frame: Frame) -> Answer | UserError:
        if frame.headers.startswith(b"NATS/1.0 503"):
            return no_jetstream(self._client.broker)
        try:
            answer: dict[str, Any] = json.loads(frame.data)
            error = answer.get("error")
            return (
                answer if error is None else ApiError(subject, error.get("err_code", 0), error.get("description", ""))
            )
        except (ValueError, AttributeError):
            return ApiError(subject, 0, "the answer is not a JSON object")


async def _never(message: Any) -> None:
    """Frames of this subscription do not come to the library."""
    raise AssertionError(f"an answer passed by: {message.subject}")
