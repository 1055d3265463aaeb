"""Who works when: one at a time, and those who serve the present before those who serve history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock for two kinds of work. Patient work waits until no hurried work is done or waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self._hurried = 0

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Work next, as soon as the one who works now is done."""
        with self._changed:
            self._hurried += 1
            self._changed.wait_for(lambda: not self._busy)
            self._hurried -= 1
            self._busy = True
        yield from self._work()

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Work when nobody else wants to."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy and not self._hurried)
            self._busy = True
        yield from self._work()

    def wait_idle(self, seconds: float) -> None:
        """Wait until nobody works, so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, timeout=seconds)

    def _work(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
