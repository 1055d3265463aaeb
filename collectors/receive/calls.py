"""The calls of gRPC that are open at once, and those of them whose messages are being read.

gRPC keeps what has come of a message, and tells nobody how much that is. So it is bounded from two sides: of a call
whose turn to be read has not come gRPC keeps a window (:func:`collectors.receive.rpc.options`), of one that is being
read a message at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from lake.web.connections import Connection

#: How long half a message may hold its place where another sender waits for one.
_STALLED_SECONDS = 1.0


class TooManyCalls(Exception):
    """As many calls are open as there may be, in all or of this peer."""


class Calls:
    """At most ``most`` calls at once, half of them of one peer. Belongs to an event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_peer: Counter[str] = Counter()
        self._answered: Counter[Connection] = Counter()

    @contextmanager
    def place(self, connection: Connection) -> Iterator[None]:
        """One call's place; TooManyCalls."""
        peer = connection.peer
        if self._of_peer.total() >= self._most or self._of_peer[peer] >= max(1, self._most // 2):
            raise TooManyCalls
        self._of_peer[peer] += 1
        try:
            yield
        finally:
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]

    @contextmanager
    def answering(self, connection: Connection) -> Iterator[None]:
        """While a message that has come is being answered, its connection is not closed to make room for another."""
        self._answered[connection] += 1
        connection.works()
        try:
            yield
        finally:
            self._answered[connection] -= 1
            if not self._answered[connection]:
                del self._answered[connection]
                connection.waits()


class Reading:
    """The messages that are being read at once, at most ``most``; those of other calls wait unread.

    A place that is free goes to the connection that holds the fewest. Where none is, the connection that holds the most
    gives up the one that it has held the longest, once it has had a while. Belongs to an event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[asyncio.Timeout, tuple[Connection, float]] = {}  # the oldest first
        self._queue: dict[asyncio.Timeout, tuple[Connection, asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def turn(self, connection: Connection, seconds: float) -> AsyncIterator[None]:
        """Wait for a place, then read within the block; TimeoutError if either takes ``seconds``."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds) as waiting:
            coming: asyncio.Future[None] = loop.create_future()
            self._queue[waiting] = connection, coming
            self._grant()
            try:
                await coming
                waiting.reschedule(loop.time() + seconds)
                yield
            finally:
                self._queue.pop(waiting, None)
                self._held.pop(waiting, None)
                self._grant()

    def _grant(self) -> None:
        """Give away the places that are free; where there is none, see who is to give up his, and when."""
        loop = asyncio.get_running_loop()
        holding = Counter(connection for connection, _ in self._held.values())
        while self._queue and len(self._held) < self._most:
            waiting = min(self._queue, key=lambda one: holding[self._queue[one][0]])
            connection, coming = self._queue.pop(waiting)
            if coming.done():  # it has been told to end, and will in a moment
                continue
            self._held[waiting] = connection, loop.time()
            holding[connection] += 1
            coming.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._queue and self._held:
            _, since = self._held[self._greediest()]
            self._timer = loop.call_at(since + _STALLED_SECONDS, self._evict)

    def _greediest(self) -> asyncio.Timeout:
        holding = Counter(connection for connection, _ in self._held.values())
        return max(self._held, key=lambda one: holding[self._held[one][0]])  # the first of several, so the oldest

    def _evict(self) -> None:
        given_up = self._greediest()
        del self._held[given_up]
        with suppress(RuntimeError):  # it has ended by itself
            given_up.reschedule(asyncio.get_running_loop().time())
        self._grant()
