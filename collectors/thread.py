"""Client libraries that block, kept off the event loop: each collector has its own threads and waits for no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Threads:
    """At most ``count`` calls at once; one thread where the client belongs to its thread."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    async def do(self, work: Callable[[], Result]) -> Result:
        """What ``work`` returns or raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Take no more work; calls that are under way end by their own timeouts."""
        self._pool.shutdown(wait=False, cancel_futures=True)
