"""The calls of gRPC that are open at once, and those of them whose messages are being read.

gRPC keeps what has come of a message, and tells nobody how much that is. So it is bounded from two sides: of a call
whose turn to be read has not come gRPC keeps a window (:func:`options`), of one that is being read a message at most.
Places are shared out between peers first, then between the connections of each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from lake.web.connections import Connection
from lake.web.policy import Limits

#: How long half a message may hold its place where another sender waits for one.
_STALLED_SECONDS = 1.0
#: Bytes that gRPC takes of a message before it is read.
_WINDOW = 64 * 1024


def options(limits: Limits, *, message_bytes: int, streams: int) -> list[tuple[str, int]]:
    """What one connection may cost a gRPC server behind a relay; how many there may be is the relay's business.

    gRPC would let the window of a call that nobody reads yet grow to megabytes where the way there is fast: what is
    held of those that wait is their number by ``_WINDOW``. ``streams`` are calls of one connection at once.
    """
    return [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_concurrent_streams", streams),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _WINDOW),
        ("grpc.max_metadata_size", 8 * 1024),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.server_handshake_timeout_ms", int(limits.header_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(max(1.0, limits.idle_seconds) * 1000)),
    ]


class TooManyCalls(Exception):
    """As many calls are open as there may be, in all or of this peer."""


class Calls:
    """At most ``most`` calls at once, half of them of one peer. Belongs to an event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_peer: Counter[str] = Counter()
        self._answered: Counter[Connection] = Counter()

    def enter(self, connection: Connection) -> None:
        """Take one call's place; TooManyCalls."""
        peer = connection.peer
        if self._of_peer.total() >= self._most or self._of_peer[peer] >= max(1, self._most // 2):
            raise TooManyCalls
        self._of_peer[peer] += 1

    def leave(self, connection: Connection) -> None:
        """The call is over."""
        peer = connection.peer
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]

    def begin(self, connection: Connection) -> None:
        """A message that has come is being answered: its connection is not closed to make room for another."""
        self._answered[connection] += 1
        connection.works()

    def end(self, connection: Connection) -> None:
        """It has been answered."""
        self._answered[connection] -= 1
        if not self._answered[connection]:
            del self._answered[connection]
            connection.waits()

    @contextmanager
    def place(self, connection: Connection) -> Iterator[None]:
        """One call's place, for as long as the block lasts; TooManyCalls."""
        self.enter(connection)
        try:
            yield
        finally:
            self.leave(connection)

    @contextmanager
    def answering(self, connection: Connection) -> Iterator[None]:
        """:meth:`begin` and :meth:`end` around a block."""
        self.begin(connection)
        try:
            yield
        finally:
            self.end(connection)


class Reading:
    """The messages that are being read at once, at most ``most``; those of other calls wait unread.

    A place that is free goes to the peer that holds the fewest, and to that of its connections which does. Where none
    is free, a peer that holds more than the one who waits gives up the place that it has held the longest, once it has
    had a while; where nobody holds more, the waiting peer itself does. Belongs to an event loop.
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
        while self._queue and len(self._held) < self._most:
            waiting = self._next()
            connection, coming = self._queue.pop(waiting)
            if coming.done():  # it has been told to end, and will in a moment
                continue
            self._held[waiting] = connection, loop.time()
            coming.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._queue and self._held:
            _, since = self._held[self._greediest()]
            self._timer = loop.call_at(since + _STALLED_SECONDS, self._evict)

    def _shares(self) -> tuple[Counter[str], Counter[Connection]]:
        """The places that each peer holds, and each connection."""
        holding = Counter(connection for connection, _ in self._held.values())
        return Counter(connection.peer for connection, _ in self._held.values()), holding

    def _next(self) -> asyncio.Timeout:
        """Whose turn it is of those who wait: of equals, the one that waits the longest."""
        if len(self._queue) == 1:
            return next(iter(self._queue))
        peers, connections = self._shares()

        def held(one: asyncio.Timeout) -> tuple[int, int]:
            connection, _ = self._queue[one]
            return peers[connection.peer], connections[connection]

        return min(self._queue, key=held)

    def _greediest(self) -> asyncio.Timeout:
        """Who is to give up his place for the next of those who wait."""
        peers, connections = self._shares()
        waiting, _ = self._queue[self._next()]
        more = max(peers.values()) > peers[waiting.peer]

        def held(one: asyncio.Timeout) -> tuple[int, bool, int]:
            connection, _ = self._held[one]
            own = connection.peer == waiting.peer and not more
            return peers[connection.peer], own, connections[connection]

        return max(self._held, key=held)  # the first of several, so the oldest

    def _evict(self) -> None:
        given_up = self._greediest()
        del self._held[given_up]
        with suppress(RuntimeError):  # it has ended by itself
            given_up.reschedule(asyncio.get_running_loop().time())
        self._grant()
