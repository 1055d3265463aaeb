"""The one thread of the process that writes bronze records, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from collectors.bronze import Bronze

Result = TypeVar("Result")


class Writer:
    """Bronze and the thread that it belongs to; work is done in the order in which it was given."""

    def __init__(self, bronze: Bronze) -> None:
        self._bronze = bronze
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lake")

    async def do(self, work: Callable[[Bronze], Result]) -> Result:
        """What ``work`` returns or raises, done with bronze on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._bronze)

    def close(self) -> None:
        """Finish the work that was given, then end the thread."""
        self._thread.shutdown(wait=True)
