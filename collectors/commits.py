"""One commit at a time: the next is sealed when the one before is done, and one that failed is repeated."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from lake.errors import SojournError

log = logging.getLogger(__name__)

Sealed = TypeVar("Sealed")

#: So many events are worth a commit; fewer wait for others, for so many flush intervals after the commit before. Each
#: commit costs the same however small, here and in all that follows it.
WORTH_A_COMMIT, PATIENCE_INTERVALS = 200, 3.0
#: Seconds before what bronze did not take is offered again.
RETRY_SECONDS = 1.0
#: Seconds that closing waits for a commit, and for how many.
_PATIENCE, _LONGEST_CLOSE = 5.0, 3


class Commits(Generic[Sealed]):
    """The commits of one tap, written beside its reading.

    ``seal`` gives what is to be committed next, or None; ``write`` commits it; ``told`` hears of each commit that
    failed, and, with None, of each that did not. Whatever failed is repeated: one tap's commit ends no other's work.
    """

    def __init__(
        self,
        seal: Callable[[], Sealed | None],
        write: Callable[[Sealed], Coroutine[Any, Any, None]],
        told: Callable[[Exception | None], None],
    ) -> None:
        self._seal = seal
        self._write = write
        self._told = told
        self._task: asyncio.Task[None] | None = None
        self._again = self._began = 0.0
        #: What is being committed; kept until it is.
        self.held: Sealed | None = None

    @property
    def at_work(self) -> bool:
        """Whether a commit was begun that nobody has looked at since."""
        return self._task is not None

    def due(self, events: int, room: int, interval: float) -> bool:
        """Whether ``events`` that are held are due: enough to be worth a commit, or kept waiting for long enough.

        ``room``: how many may be held; ``interval``: the least seconds between two commits. The first few after a while
        are not kept waiting.
        """
        many = min(WORTH_A_COMMIT, room // 2)
        return events >= many or time.monotonic() - self._began >= interval * PATIENCE_INTERVALS

    async def flush(self) -> None:
        """Begin the next commit, if the one before is done."""
        if self._task is not None:
            if not self._task.done():
                return
            failed = self._task.exception()
            self._task = None
            if failed is None:
                self.held = None
                self._told(None)
            elif isinstance(failed, Exception):
                if not isinstance(failed, SojournError | OSError):
                    log.error("a commit failed in a way that nobody foresaw: it is repeated", exc_info=failed)
                self._again = time.monotonic() + RETRY_SECONDS
                self._told(failed)
            else:
                raise failed
        if time.monotonic() < self._again:
            return
        if self.held is None:
            self.held = self._seal()
        if self.held is not None:
            self._began = time.monotonic()
            self._task = asyncio.create_task(self._write(self.held))

    async def wait(self, seconds: float | None = None) -> None:
        """Until the commit at work, if any, is done, or the time is over."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)

    async def finish(self) -> None:
        """Commit what is there; some of it may be left where bronze takes nothing."""
        for _ in range(_LONGEST_CLOSE):
            await self.wait(_PATIENCE)
            self._again = 0.0
            await self.flush()
            if self._task is None:
                return
