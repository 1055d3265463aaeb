"""The one thread of the process that writes to the lake, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lake.store import Lake

Result = TypeVar("Result")


class Writer:
    """A lake and the thread that it belongs to; work is done in the order in which it was given."""

    def __init__(self, root: Path) -> None:
        self._lake = Lake(root)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lake")

    async def do(self, work: Callable[[Lake], Result]) -> Result:
        """What ``work`` returns or raises, done with the lake on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._lake)

    def close(self) -> None:
        """Finish the work that was given, then end the thread."""
        self._thread.shutdown(wait=True)
