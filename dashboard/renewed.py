"""One answer that many look at: it is worked out once for all, and who cannot wait for a newer one has the last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Renewed(Generic[T]):
    """The newest answer to one question. Safe to share between threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "dashboard-present")
        self._lock = Lock()
        self._work: Future[T] | None = None
        self._token: Hashable = None
        self._last: Future[T] | None = None  # that came to an end without an error

    def answer(self, token: Hashable, work: Callable[[], T], patience: float) -> T:
        """What ``work`` comes to as of ``token``; what it came to last, where that takes longer
        than ``patience`` (seconds).

        The first of all waits for as long as it takes, and so does whoever asks after an error: that is raised to all
        who asked meanwhile, and the work is tried again for the next.
        """
        with self._lock:
            now = self._work
            self._keep(now)  # it may have come to an end while nobody waited for it
            if now is None or (now.done() and (token != self._token or now.exception() is not None)):
                now = self._work = self._pool.submit(work)
                self._token = token
            last = self._last
        wait([now], None if last is None else patience)
        if last is not None and not now.done():
            return last.result()
        with self._lock:
            self._keep(now)
        return now.result()

    def _keep(self, work: Future[T] | None) -> None:
        if work is not None and work.done():
            self._last = None if work.exception() is not None else work
