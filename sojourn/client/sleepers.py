"""Tasks that sleep in their event loops until their time has come, or another thread wakes them all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable


class Sleepers:
    """Those who sleep, of whatever event loop. Safe to wake from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asleep: dict[asyncio.AbstractEventLoop, set[asyncio.Future[None]]] = {}

    async def sleep(self, seconds: float, needless: Callable[[], bool]) -> None:
        """Sleep for ``seconds`` at most; not at all if ``needless`` says so once a :meth:`wake` would be heard."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._asleep.setdefault(loop, set()).add(woken)
        timer = loop.call_later(seconds, _wake, (woken,))
        try:
            if not needless():
                await woken
        finally:
            timer.cancel()
            with self._lock:
                there = self._asleep.get(loop, set())
                there.discard(woken)
                if not there:
                    self._asleep.pop(loop, None)

    def wake(self) -> None:
        """End the sleep of all."""
        with self._lock:
            asleep = {loop: tuple(those) for loop, those in self._asleep.items()}
        for loop, those in asleep.items():
            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(_wake, those)


def _wake(those: Iterable[asyncio.Future[None]]) -> None:
    for one in those:
        if not one.done():
            one.set_result(None)
