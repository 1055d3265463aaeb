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

from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.executors import append_by_executors
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import Flow, Rows
from spark_analytics.batches.read import pieces
from spark_analytics.batches.tenants import Tenants
from spark_analytics.gold import Gold

log = logging.getLogger(__name__)


class Engine:
    """Brings the batches of one flow into gold: up to ``driver_bytes`` of files here, ``threads`` pieces at a time.

    What needs to know of other batches, tenants and attempts, is done here alone, piece by piece in their order.
    """

    def __init__(
        self, flow: Flow, gold: Gold, *, threads: int, driver_bytes: int, tenants: Tenants, attempts: Attempts
    ) -> None:
        self._flow = flow
        self._gold = gold
        self._threads = threads
        self._driver_bytes = driver_bytes
        self._tenants = tenants
        self._attempts = attempts
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    def process(self, batch_id: int, batch: DataFrame, files: Files | None) -> int:
        """Bring ``batch`` into gold, once; the records in it. ``files``, if known, hold its rows and no others."""
        if self._gold.holds(batch_id):
            log.info("flow=%s batch=%d already in gold", self._flow.name, batch_id)
            return 0
        started = time.monotonic()
        here = files is not None and files.size_bytes <= self._driver_bytes
        if files is not None and here:
            count = self._append_here(batch_id, files.paths)
        else:
            count = append_by_executors(self._flow, batch, self._gold.path, self._gold.query_id, batch_id)
        if count:
            where, seconds = "driver" if here else "executors", time.monotonic() - started
            log.info("flow=%s batch=%d by=%s rows=%d seconds=%.3f", self._flow.name, batch_id, where, count, seconds)
        return count

    def close(self) -> None:
        """End the threads; a batch at work is finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _append_here(self, batch_id: int, paths: Sequence[Path]) -> int:
        self._attempts.begin(batch_id)
        count = 0
        done: list[Rows] = []
        running: deque[Future[Rows]] = deque()
        for piece in pieces(paths, self._flow.schema):
            count += piece.num_rows
            prepared = self._tenants.bounded(self._attempts.numbered(piece))
            running.append(self._pool.submit(self._flow.compute, prepared))
            if len(running) > self._threads:  # so many pieces are in memory, and one more that is being read
                done.append(running.popleft().result())
        done.extend(future.result() for future in running)
        if not done:
            done.append(self._flow.compute(self._flow.schema.empty_table()))
        self._attempts.keep(batch_id)
        self._gold.write(batch_id, {table: pa.concat_tables([rows[table] for rows in done]) for table in done[0]})
        return count
