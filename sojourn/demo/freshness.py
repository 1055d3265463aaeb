"""How far what can be read in gold lags behind the wall clock, sampled at regular instants while the demo runs.

At each sample: now − the newest instant that a table tells of, of ``partials`` the newest ``occurred_at``. Between two
commits the value grows with the clock, so the samples are what somebody sees who looks at a random moment, not the best
case right after a commit. The demo's broker hears of well over 50 messages a second, so its newest event is only
milliseconds old itself.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from lake.log import log_entry

SAMPLE_SECONDS = 0.1
LOOK_SECONDS = 0.02
#: Older samples are forgotten: ten hours of them.
MOST_SAMPLES = 360_000


class Freshness(threading.Thread):
    """Samples in the background; it reads the transaction log's statistics alone, never the data."""

    def __init__(self, table: Path, column: str = "newest_occurred_at") -> None:
        super().__init__(name="freshness", daemon=True)
        self._log = table / "_delta_log"
        self._column = column
        self._done = threading.Event()
        self._version = newest_version(self._log)
        self._newest: float | None = None
        self._samples: list[tuple[float, float]] = []

    def run(self) -> None:
        """Look for new commits each 20 ms, keep a sample each 100 ms."""
        due = time.time()
        while not self._done.wait(LOOK_SECONDS):
            while (entry := log_entry(self._log.parent, self._version + 1)).exists():
                self._version += 1
                if (newest := newest_event(entry, self._column)) is not None:
                    self._newest = max(newest, self._newest or 0.0)
            now = time.time()
            if self._newest is not None and now >= due:
                self._samples.append((now, max(0.0, now - self._newest)))
                del self._samples[:-MOST_SAMPLES]
                due = now + SAMPLE_SECONDS

    @property
    def first_metrics(self) -> bool:
        """Whether gold has gained anything since the sampling began."""
        return self._newest is not None

    def between(self, since: float, until: float) -> list[float]:
        """The samples (seconds) taken between two instants (unix seconds)."""
        return [lag for at, lag in self._samples if since <= at < until]

    def stop(self) -> None:
        """End the sampling."""
        self._done.set()
        self.join(timeout=1)


def newest_version(log: Path) -> int:
    """The newest version in a Delta log; −1 where there is none."""
    return max((int(entry.stem) for entry in log.glob("*.json") if entry.stem.isdigit()), default=-1)


def newest_event(entry: Path, column: str = "newest_occurred_at") -> float | None:
    """The newest instant (unix seconds) in ``column`` of the files that a commit added with new data."""
    newest: float | None = None
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in entry.read_text(encoding="utf-8").splitlines():
            added = json.loads(line).get("add")
            if not added or not added.get("dataChange") or not added.get("stats"):
                continue
            text = json.loads(added["stats"]).get("maxValues", {}).get(column)
            if text is not None:
                at = datetime.fromisoformat(text.replace("Z", "+00:00"))
                at = at if at.tzinfo else at.replace(tzinfo=UTC)
                newest = max(at.timestamp(), newest or 0.0)
    return newest
