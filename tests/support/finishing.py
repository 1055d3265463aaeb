"""Finished state for a lake of samples, all the while: of these it needs no JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lake.store import Lake
from spark_analytics.state.writer import Writer
from tests.support.waiting import PATIENCE


@contextmanager
def finishing(root: Path) -> Iterator[None]:
    """What the analysis does of samples, as often as a rule may want it."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.2):
            if Lake(root).exists("queue_samples"):
                writer = Writer(root)
                writer.step()
                writer.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30 * PATIENCE)
