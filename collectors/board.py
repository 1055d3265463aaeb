"""The newest samples of every sampler, for the Prometheus exposition."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from collectors.samples import Sample

#: How long the set of all queues is kept: making it looks at every sample.
_QUEUES_SECONDS = 1.0


class Board:
    """Written by samplers on the event loop, read by the exposition's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[str, Sequence[Sample]]] = {}
        self._queues: tuple[float, frozenset[tuple[str, str]]] | None = None

    def show(self, source: str, broker: str, samples: Sequence[Sample]) -> None:
        """Replace what ``source`` said before."""
        with self._lock:
            self._newest[source] = (broker, samples)

    def forget(self, source: str) -> None:
        """``source`` reads nothing now: its numbers disappear rather than stand still."""
        with self._lock:
            self._newest.pop(source, None)

    def queues(self) -> frozenset[tuple[str, str]]:
        """(broker, queue) of every sample, as of a second ago or later."""
        with self._lock:
            if self._queues is None or time.monotonic() > self._queues[0] + _QUEUES_SECONDS:
                shown = frozenset((name, one.queue) for name, samples in self._newest.values() for one in samples)
                self._queues = time.monotonic(), shown
            return self._queues[1]

    def newest(self) -> list[tuple[str, Sequence[Sample]]]:
        """(broker, samples) of every source that reads."""
        with self._lock:
            return list(self._newest.values())
