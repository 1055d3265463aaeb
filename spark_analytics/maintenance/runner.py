"""The background duty of ``sojourn analyze``: a round of upkeep each so many batches, beside the stream."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from lake.errors import SojournError
from lake.files import only_one
from lake.store import Lake
from spark_analytics.maintenance.retention import Retention
from spark_analytics.maintenance.routine import lock_path, run_maintenance, shorten_logs

log = logging.getLogger(__name__)

#: Seconds between two rounds that fold, prune, drop, vacuum and clean logs; the others only roll up and merge.
THOROUGH_SECONDS = 600.0
#: Seconds between two cuts of the logs that streams follow: Spark lists them whole, several times for each batch.
LOG_SECONDS = 30.0


class MaintenanceRunner:
    """Keeps the lake small each ``every`` batches (0: never), beside the stream, which never waits for it."""

    def __init__(self, root: Path, every: int, retention: Retention) -> None:
        self._root = root
        self._every = every
        self._retention = retention
        self._batches = 0
        self._thorough_at = time.monotonic()
        self._logs_at = self._thorough_at + LOG_SECONDS
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._running: Future[None] | None = None

    def count_batch(self) -> None:
        """One batch more; starts the work when it is time and none is running."""
        self._batches += 1
        if not self._every or (self._running is not None and not self._running.done()):
            return
        now = time.monotonic()
        if self._batches >= self._every:
            self._batches = 0
            self._running = self._worker.submit(self._alone, self._keep)
        elif now >= self._logs_at:
            self._logs_at = now + LOG_SECONDS
            self._running = self._worker.submit(self._alone, self._shorten_logs)

    def close(self) -> None:
        """Wait for the work that is running, if any."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _alone(self, work: Callable[[], None]) -> None:
        try:
            with only_one(lock_path(self._root), "maintenance of this lake"):
                work()
        except SojournError as error:
            log.warning("maintenance deferred: %s", error)
        except Exception:
            log.exception("maintenance failed")  # gold is as it was: the next round tries again

    def _keep(self) -> None:
        thorough = time.monotonic() >= self._thorough_at
        try:
            run_maintenance(Lake(self._root), self._retention, thorough=thorough)
        finally:
            if thorough:
                self._thorough_at = time.monotonic() + THOROUGH_SECONDS

    def _shorten_logs(self) -> None:
        shorten_logs(Lake(self._root), self._retention)
