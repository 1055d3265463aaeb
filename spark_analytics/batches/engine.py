"""A micro-batch → rows of gold, behind one interface: here while its files are few, by Spark's executors beyond.

Both run the same functions (:mod:`spark_analytics.transforms`). Here no job is scheduled and no row changes its shape
on the way from Parquet to NumPy; executors share the work of a batch that is too large for one process: docs/adr/0009.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_analytics.batches.executors import append_by_executors
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import Flow, Rows
from spark_analytics.batches.read import pieces
from spark_analytics.gold import Gold

log = logging.getLogger(__name__)


class Engine:
    """Computes batches and appends them to gold: up to ``driver_bytes`` of files here, ``threads`` pieces at a time."""

    def __init__(self, threads: int, driver_bytes: int) -> None:
        self._threads = threads
        self._driver_bytes = driver_bytes
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    def process(self, flow: Flow, batch: DataFrame, files: Files | None, gold: Gold, batch_id: int) -> int:
        """Bring ``batch`` into ``gold``; the records in it. ``files``, if known, hold its rows and no others."""
        started = time.monotonic()
        if files is not None and files.size_bytes <= self._driver_bytes:
            where = "driver"
            rows, count = self._computed(flow, files.paths)
            gold.write(batch_id, rows)
        else:
            where, count = "executors", append_by_executors(flow, batch, gold.path, gold.query_id, batch_id)
        log.info("flow=%s batch=%d by=%s rows=%d seconds=%.3f", flow.name, batch_id, where, count,
                 time.monotonic() - started)  # fmt: skip
        return count

    def close(self) -> None:
        """End the threads; a batch at work is finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _computed(self, flow: Flow, paths: Sequence[Path]) -> tuple[Rows, int]:
        count = 0
        done: list[Rows] = []
        running: deque[Future[Rows]] = deque()
        for piece in pieces(paths, flow.schema):
            count += piece.num_rows
            running.append(self._pool.submit(flow.compute, piece))
            if len(running) > self._threads:  # so many pieces are in memory, and one more that is being read
                done.append(running.popleft().result())
        done.extend(future.result() for future in running)
        if not done:
            done.append(flow.compute(flow.schema.empty_table()))
        return {table: pa.concat_tables([rows[table] for rows in done]) for table in flow.writes}, count
