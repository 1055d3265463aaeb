"""Finished state as the analysis keeps it, without a JVM: once, behind each look of a reader, or all the while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from lake.reader import Reader
from lake.store import Lake
from spark_analytics.state.writer import Writer
from tests.support.waiting import PATIENCE


def finish(root: Path | str, *, anew: bool = False) -> None:
    """Finish what the lake at ``root`` holds by now; ``anew``: tell every second of history again."""
    writer = Writer(Path(root), anew=anew)
    writer.step()
    writer.close()


class FinishingReader(Reader):
    """A reader of a lake whose state the analysis has finished whenever somebody asks."""

    def query(self, sql: str) -> pa.Table:
        """As the reader's."""
        if Lake(self.root).exists("partials") or Lake(self.root).exists("queue_samples"):
            self._writer = getattr(self, "_writer", None) or Writer(self.root)
            self._writer.step()
        return super().query(sql)


@contextmanager
def finishing(root: Path) -> Iterator[None]:
    """What the analysis does of samples, as often as a rule may want it."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.2):
            if Lake(root).exists("queue_samples"):
                finish(root)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30 * PATIENCE)
