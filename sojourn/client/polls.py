"""Counting polls, so that the share of empty ones tells how much headroom the consumers have.

Each poll weighs ``max(1, round(milliseconds waited))``. The weight enters ``polls``, and ``empty_polls`` too if the
poll brought nothing; the ratio of the two is the empty-poll ratio weighted by waiting time: one empty long poll of 20 s
says as much as 20,000 empty short ones of up to 1 ms.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

#: Different (broker, queue, subscriber) that are told apart between two sendings; the rest counts as queue ``other``.
MOST_KEYS = 4096
OTHER = "other"

Key = tuple[str, str, str | None]


class Polls:
    """Weighted polls since they were last taken."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget everything, in a forked child."""
        self._lock = threading.Lock()
        self._counts: dict[Key, list[int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: Key, messages: int, waited: float) -> None:
        """Count one poll that waited ``waited`` seconds and brought ``messages``."""
        weight = max(1, round(waited * 1000))
        with self._lock:
            counts = self._counts.get(key)
            if counts is None:
                if len(self._counts) >= MOST_KEYS:
                    key = (key[0], OTHER, None)
                counts = self._counts.setdefault(key, [0, 0])
            counts[0] += weight
            if not messages:
                counts[1] += weight

    def take(self) -> dict[Key, list[int]]:
        """Take out what was counted: polls and empty polls of each (broker, queue, subscriber)."""
        if not self._counts:
            return {}
        with self._lock:
            taken, self._counts = self._counts, {}
        return taken


class Poll:
    """One poll, timed from entry to exit: set ``messages`` to how many it brought. One that raises is not counted."""

    __slots__ = ("_key", "_polls", "_started", "messages")

    def __init__(self, polls: Polls, key: Key) -> None:
        self._polls, self._key, self._started = polls, key, 0.0
        self.messages = 0

    def __enter__(self) -> Poll:
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self._polls.add(self._key, self.messages, time.monotonic() - self._started)
