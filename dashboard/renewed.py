"""One answer that many look at: it is worked out once for all, and who cannot wait for a newer one has the last."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock, Timer
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")


class Renewed(Generic[T]):
    """The newest answer to one question. Safe to share between threads.

    ``took``: the seconds that it took to work it out last.
    """

    def __init__(self) -> None:
        self.took = 0.0
        self._pool = ThreadPoolExecutor(1, "dashboard-present")
        self._lock = Lock()
        self._work: Future[T] | None = None
        self._token: Hashable = None
        self._last: Future[T] | None = None  # that came to an end without an error
        self._timer: Timer | None = None
        self._new_until = 0.0  # (monotonic) until when what was begun ahead is new enough, whatever came since

    def answer(self, token: Hashable, work: Callable[[], T], patience: float) -> T:
        """What ``work`` comes to as of ``token``; what it came to last, where that takes longer
        than ``patience`` (seconds): at once, where it took longer the last time.

        The first of all waits for as long as it takes, and so does whoever asks after an error: that is raised to all
        who asked meanwhile, and the work is tried again for the next.
        """
        now, last = self.begin(token, work)
        wait([now], None if last is None else patience if self.took <= patience else 0.0)
        if last is not None and not now.done():
            return last.result()
        with self._lock:
            self._keep(now)
        return now.result()

    def begin(
        self, token: Hashable, work: Callable[[], T], *, ahead: bool = False
    ) -> tuple[Future[T], Future[T] | None]:
        """Have it worked out as of ``token``, unless it is or was; gives back that, and the last that has ended.

        What was begun ahead for who asks now is as good: nobody waits once more for what came since. To who begins
        ``ahead`` it is not: else many that look would keep each other from what is new.
        """
        with self._lock:
            now = self._work
            self._keep(now)  # it may have come to an end while nobody waited for it
            old = token != self._token and (ahead or monotonic() >= self._new_until)
            if now is None or (now.done() and (old or now.exception() is not None)):
                now = self._work = self._pool.submit(self._timed, work)
                self._token = token
            return now, self._last

    def ahead(self, seconds: float, begin: Callable[[], object], new_for: float = 0.0) -> None:
        """Have ``begin`` called after ``seconds``, unless something is to be called already; what it begins is new
        enough for ``new_for`` seconds."""

        def called() -> None:
            begin()
            with self._lock:
                self._new_until = monotonic() + new_for

        with self._lock:
            if self._timer is None or not self._timer.is_alive():
                self._timer = Timer(seconds, called)
                self._timer.daemon = True
                self._timer.start()

    def _timed(self, work: Callable[[], T]) -> T:
        begun = monotonic()
        try:
            return work()
        finally:
            self.took = monotonic() - begun

    def _keep(self, work: Future[T] | None) -> None:
        if work is not None and work.done():
            self._last = None if work.exception() is not None else work
