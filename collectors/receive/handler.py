"""Hands in what the servers took, and waits until it is durable."""

from __future__ import annotations

import asyncio

from collectors.receive.inbox import Answer, Format, Inbox, Request
from collectors.receive.status import Code

#: After so many seconds a sender may come again.
RETRY_SECONDS = 1


class RequestHandler:
    """Belongs to the servers' event loop."""

    def __init__(self, inbox: Inbox, answer_seconds: float) -> None:
        self._inbox = inbox
        self._seconds = answer_seconds

    async def hand_in(self, format: Format, body: bytes, peer: str) -> Answer:
        """The answer to a request of ``peer``, once it is durable, or refused."""
        loop = asyncio.get_running_loop()
        coming: asyncio.Future[Answer] = loop.create_future()

        def answer(given: Answer) -> None:
            try:
                loop.call_soon_threadsafe(_give, coming, given)
            except RuntimeError:
                return  # the servers are closed: nobody waits any more

        if not self._inbox.offer(Request(format, body, answer, peer)):
            if self._inbox.is_open:
                return Answer(Code.RESOURCE_EXHAUSTED, "too much is pending", retry_seconds=RETRY_SECONDS)
            return Answer(Code.UNAVAILABLE, "the receiver is not ready", retry_seconds=RETRY_SECONDS)
        try:
            return await asyncio.wait_for(coming, self._seconds)
        except TimeoutError:
            return Answer(Code.UNAVAILABLE, "not durable in time", retry_seconds=RETRY_SECONDS)


def _give(coming: asyncio.Future[Answer], given: Answer) -> None:
    if not coming.done():
        coming.set_result(given)
