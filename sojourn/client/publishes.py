"""Counting publishes, so that a law can tell whether the broker is congested: how many, how long, how many failed.

The statistics are Zalando's for its load shedding (P50 of publish latency, exceptions; "Enhancing Distributed System
Load Shedding with TCP Congestion Control Algorithm", April 2024), kept as a histogram, so that those of many processes
add up. They are statistics of now, no books: what nobody took for ``kept_seconds`` is forgotten.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from sojourn.client.partial import LONGEST_PUBLISH, bucket_index
from sojourn.client.polls import MOST_KEYS, OTHER

#: The longest that is remembered of a time in which nothing could be sent, in seconds.
KEPT_SECONDS = 10.0

Key = tuple[str, str]


@dataclass(slots=True)
class PublishCount:
    """Publishes that ended, the ``errors`` among them, and the durations of the others by bucket."""

    publishes: int = 0
    errors: int = 0
    histogram: dict[int, int] = field(default_factory=dict)

    def row(self, broker: str, queue: str, until: int) -> dict[str, Any]:
        """As either format has it: counted ``until`` then (microseconds), the histogram as pairs."""
        return {
            "broker": broker,
            "queue": queue,
            "until": until,
            "publishes": self.publishes,
            "errors": self.errors,
            "seconds_histogram": sorted(self.histogram.items()),
        }


class Publishes:
    """Publishes by (broker, queue) since they were last taken; at most ``MOST_KEYS`` are told apart."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS) -> None:
        self._kept = kept_seconds
        self.renew()

    def renew(self) -> None:
        """Forget everything, in a forked child."""
        self._lock = threading.Lock()
        self._counts: dict[Key, PublishCount] = {}
        self._until = 0.0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: Key, seconds: float, *, failed: bool = False) -> None:
        """Count one publish that ended now after ``seconds``; of one that failed no duration is kept."""
        now = time.monotonic()
        # Compared this way round, what is no number counts as no time at all.
        bucket = bucket_index(min(seconds, LONGEST_PUBLISH) if seconds > 0 else 0.0)
        with self._lock:
            if now >= self._until:
                self._counts.clear()
                self._until = now + self._kept
            count = self._counts.get(key)
            if count is None:
                if len(self._counts) >= MOST_KEYS:
                    key = (key[0], OTHER)
                count = self._counts.setdefault(key, PublishCount())
            count.publishes += 1
            if failed:
                count.errors += 1
            else:
                count.histogram[bucket] = count.histogram.get(bucket, 0) + 1

    def take(self) -> dict[Key, PublishCount]:
        """Take out what was counted of each (broker, queue)."""
        if not self._counts:
            return {}
        with self._lock:
            taken, self._counts = self._counts, {}
            late, self._until = time.monotonic() >= self._until, 0.0
        return {} if late else taken


class Publishing:
    """One publish, timed from entry to exit; one that raises failed."""

    __slots__ = ("_key", "_publishes", "_started")

    def __init__(self, publishes: Publishes, key: Key) -> None:
        self._publishes, self._key, self._started = publishes, key, 0.0

    def __enter__(self) -> Publishing:
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._publishes.add(self._key, time.monotonic() - self._started, failed=kind is not None)
