"""What is waited for, told while it is: on a busy machine everything comes, only later."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How often it is told what is waited for, after a first time in which most of it has come.
TOLD_EVERY_SECONDS = 15.0


class Patience:
    """Says, each 15 s, what is being waited for; ``say`` shows a sentence."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._began = self._told = now()

    def tell(self, what: Callable[[], str]) -> None:
        """Say ``what`` is waited for, if it is time to."""
        now = self._now()
        if now - self._told >= TOLD_EVERY_SECONDS:
            self._told = now
            self._say(f"still waiting for {what()} ({now - self._began:.0f} s)")
