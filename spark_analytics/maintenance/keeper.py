"""The background duty of ``sojourn analyze``: a round of upkeep each so many batches, beside the stream."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from lake.errors import SojournError
from lake.files import only_one
from lake.store import Lake
from spark_analytics.maintenance.retention import Retention
from spark_analytics.maintenance.routine import keep, lock_path

log = logging.getLogger(__name__)

#: Seconds between two rounds that fold, thin, drop, vacuum and clean logs; the others only roll up and merge.
THOROUGH_SECONDS = 600.0


class Keeper:
    """Keeps the lake small each ``every`` batches (0: never), beside the stream, which never waits for it."""

    def __init__(self, root: Path, every: int, retention: Retention) -> None:
        self._root = root
        self._every = every
        self._retention = retention
        self._batches = 0
        self._thorough_at = time.monotonic()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._running: Future[None] | None = None

    def count_batch(self) -> None:
        """One batch more; starts the work when it is time and none is running."""
        self._batches += 1
        if self._every and self._batches >= self._every and (self._running is None or self._running.done()):
            self._batches = 0
            self._running = self._worker.submit(self._keep)

    def close(self) -> None:
        """Wait for the work that is running, if any."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _keep(self) -> None:
        thorough = time.monotonic() >= self._thorough_at
        try:
            with only_one(lock_path(self._root), "maintenance of this lake"):
                keep(Lake(self._root), self._retention, thorough=thorough)
        except SojournError as error:
            log.warning("maintenance put off: %s", error)
        except Exception:
            log.exception("maintenance failed")  # gold is as it was: the next round tries again
        if thorough:
            self._thorough_at = time.monotonic() + THOROUGH_SECONDS
