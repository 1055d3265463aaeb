"""The relay and its bounds for a gRPC server of threads: each call is counted in the relay's own event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

from lake.web.calls import Calls, Reading
from lake.web.connections import Connection
from lake.web.policy import Limits
from lake.web.relay import Relay

T = TypeVar("T")

_END_SECONDS = 10.0


class ThreadedRelay:
    """Carries what comes at ``listener`` to a server at :attr:`address`, from :meth:`start` to :meth:`close`.

    ``calls`` may be open at once, ``messages`` be read at once.
    """

    def __init__(self, listener: socket.socket, limits: Limits, *, tls: bool, calls: int, messages: int) -> None:
        self._relay = Relay(listener, limits, tls=tls)
        self.address = self._relay.address
        self._calls, self._reading = Calls(calls), Reading(messages)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Begin to accept: the server listens."""
        self._do(self._relay.start)

    def close(self) -> None:
        """Accept no more, and end what is left."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_END_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        self._loop.close()

    def caller(self, peer: str) -> Caller | None:
        """Who calls, by what gRPC calls him; None where the connection has ended, or came from elsewhere."""
        connection = self._relay.place(peer)
        return None if connection is None else Caller(self, connection)

    async def _end(self) -> None:
        await self._relay.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _do(self, what: Callable[[], T]) -> T:
        """``what``, in the loop."""

        async def doing() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(doing(), self._loop).result()

    def _tell(self, what: Callable[[], object]) -> None:
        """``what``, in the loop, in a moment; nothing where the relay is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)


class Caller:
    """The connection of one call; used by one thread at a time."""

    def __init__(self, relay: ThreadedRelay, connection: Connection) -> None:
        self._at = relay
        self._connection = connection

    def proven(self) -> None:
        """It has shown the token, or sent a proper request where none is asked for."""
        self._at._tell(self._connection.proven)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One call's place, for as long as the block lasts; :class:`lake.web.calls.TooManyCalls`."""
        calls, connection = self._at._calls, self._connection
        self._at._do(lambda: calls.enter(connection))
        try:
            yield
        finally:
            self._at._tell(lambda: calls.leave(connection))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While a message that has come is being answered, its connection is not closed to make room for another."""
        calls, connection = self._at._calls, self._connection
        self._at._tell(lambda: calls.begin(connection))
        try:
            yield
        finally:
            self._at._tell(lambda: calls.end(connection))

    @contextmanager
    def turn(self, seconds: float, give_up: Callable[[], object]) -> Iterator[None]:
        """Wait for a place to read a message, then read within the block; TimeoutError where none is free in time.

        ``give_up`` is called, in another thread, where reading takes ``seconds``, or others need the place.
        """
        loop, reading, connection = self._at._loop, self._at._reading, self._connection
        granted: Future[None] = Future()
        read = asyncio.Event()

        async def hold() -> None:
            try:
                async with reading.turn(connection, seconds):
                    granted.set_result(None)
                    await read.wait()
            except TimeoutError:
                if granted.done() and not read.is_set():
                    give_up()
            finally:
                if not granted.done():
                    granted.set_exception(TimeoutError())

        asyncio.run_coroutine_threadsafe(hold(), loop)
        granted.result()
        try:
            yield
        finally:
            self._at._tell(read.set)
