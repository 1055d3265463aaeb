"""A consumer at work in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sojourn import FairConsumer


@contextmanager
def running(consumer: FairConsumer[Any]) -> Iterator[None]:
    """It runs until the block ends, and then ends by itself."""
    thread = threading.Thread(target=consumer.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(60)
        assert not thread.is_alive()
