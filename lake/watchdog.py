"""What is to happen when something takes too long: one thread for all of it, not one for each thing that is watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watchdog:
    """Calls back what has not ended in time. Safe to share between threads; its own is started when first needed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes_at = float("inf")
        self._thread: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float, otherwise: Callable[[], None]) -> Iterator[None]:
        """Call ``otherwise``, which must be quick, if the block takes longer than ``seconds``; never after its end."""
        mark, ends = object(), time.monotonic() + seconds
        with self._changed:
            self._watched[mark] = ends, otherwise
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()
            elif ends < self._wakes_at:  # it sleeps on where something ends before: mostly nothing has to be done
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._watched.pop(mark, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                self._wakes_at = self._call_back()
                lasting = self._wakes_at - time.monotonic()
                self._changed.wait(None if lasting == float("inf") else max(0.0, lasting))

    def _call_back(self) -> float:
        """Call back what is due; when to look again. In a frame of its own: the thread's must hold on to nothing."""
        now = time.monotonic()
        for mark in [mark for mark, (ends, _) in self._watched.items() if ends <= now]:
            self._watched.pop(mark)[1]()
        return min((ends for ends, _ in self._watched.values()), default=float("inf"))


WATCHDOG = Watchdog()
