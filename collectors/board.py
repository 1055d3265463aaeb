"""The newest samples of every sampler, for the Prometheus exposition."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from collectors.samples import Sample


class Board:
    """Written by samplers on the event loop, read by the exposition's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[str, Sequence[Sample]]] = {}

    def show(self, source: str, broker: str, samples: Sequence[Sample]) -> None:
        """Replace what ``source`` said before."""
        with self._lock:
            self._newest[source] = (broker, samples)

    def forget(self, source: str) -> None:
        """``source`` reads nothing now: its numbers disappear rather than stand still."""
        with self._lock:
            self._newest.pop(source, None)

    def newest(self) -> list[tuple[str, Sequence[Sample]]]:
        """(broker, samples) of every source that reads."""
        with self._lock:
            return list(self._newest.values())
