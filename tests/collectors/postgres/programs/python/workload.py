"""What the applications here do, whatever the library: a worker stuck on one job, and jobs in every state."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable


class Workload:
    """``insert(what, tenant, once, later)`` adds a job: without a second attempt, or in an hour."""

    def __init__(self, insert: Callable[[str, str, bool, bool], Awaitable[None]]) -> None:
        self._insert = insert
        self._ended: asyncio.Queue[float] = asyncio.Queue()

    async def work(self, what: str) -> None:
        """What a job does when it is worked on; raises ValueError where it is to fail."""
        self._ended.put_nowait(time.time())
        if what == "stuck":
            await asyncio.Event().wait()
        if what.startswith("fail"):
            raise ValueError(what)

    async def run(self, start: Callable[[], Awaitable[None]]) -> None:
        """Do it, tell of it, and stay until the standard input ends."""
        await self._insert("fail", "b", False, False)
        await self._insert("fail once", "b", True, False)
        await self._insert("done", "a", False, False)
        await start()
        for _ in range(3):
            await self._ended.get()
        stuck = await self._timed("stuck", "a")
        began = await self._ended.get()
        first = await self._timed("wait", "a")
        await self._insert("wait", "a", False, False)
        await self._insert("wait", "b", False, False)
        for _ in range(2):
            await self._insert("wait", "a", False, True)
        print(json.dumps({"stuck": stuck, "began": began, "first": first}), flush=True)
        await asyncio.to_thread(sys.stdin.read)

    async def _timed(self, what: str, tenant: str) -> tuple[float, float]:
        before = time.time()
        await self._insert(what, tenant, False, False)
        return before, time.time()
