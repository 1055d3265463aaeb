"""How a process that runs until it is told to stop hears of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set; a second signal interrupts at once."""
    stop = threading.Event()
    told: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if told or stop.is_set():
            raise KeyboardInterrupt
        told.append(number)
        # Not from here: the signal may have come while this very thread held the event's lock, on its way into or out
        # of a wait, and it would wait for itself.
        threading.Thread(target=stop.set, name="stopping", daemon=True).start()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
