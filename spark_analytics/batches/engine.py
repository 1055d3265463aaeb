"""A micro-batch → rows of gold, behind one interface: here while its files are few, by Spark's executors beyond.

Both run the same functions (:mod:`spark_analytics.transforms`). Here no job is scheduled and no row changes its shape
on the way from Parquet to NumPy; executors share the work of a batch that is too large for one process: docs/adr/0009.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lake.remote import Location, Remote
from lake.staged import Staged
from spark_analytics.batches.arrivals import numbered
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.executors import Kept, add_from_executors, append_by_executors
from spark_analytics.batches.files import Files
from spark_analytics.batches.flows import Flow
from spark_analytics.batches.read import Source, fetched, pieces, rows_in
from spark_analytics.batches.tenants import Tenants
from spark_analytics.gold import Gold

log = logging.getLogger(__name__)


class Engine:
    """Brings the batches of one flow into gold: up to ``driver_bytes`` of files here, ``threads`` pieces at a time.

    What needs to know of other batches is decided here whoever computes: which tenants are told apart, and the attempts
    that nobody numbered. A batch gives the same rows either way.
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

    def process(self, batch_id: int, batch: Callable[[], DataFrame], files: Files | None) -> int:
        """Bring a batch into gold, once; the records in it. ``files``, if known, hold its rows and no others.

        ``batch`` gives the rows, and is asked only where executors are to compute them.
        """
        if self._gold.holds(batch_id):
            log.info("flow=%s batch=%d already in gold", self._flow.name, batch_id)
            return 0
        started = time.monotonic()
        paths = self._paths(files)
        if paths is not None and files is not None:
            count = self._append_here(batch_id, fetched(paths, files.size_bytes))
        else:
            count = self._append_by_executors(batch_id, batch(), files)
        if count:
            where, seconds = "executors" if paths is None else "driver", time.monotonic() - started
            log.info("flow=%s batch=%d by=%s rows=%d seconds=%.3f", self._flow.name, batch_id, where, count, seconds)
        return count

    def reads(self, files: Files | None) -> bool:
        """Whether a batch of these files is computed here, so that its rows are asked of nobody."""
        return self._paths(files) is not None

    def _paths(self, files: Files | None) -> Sequence[Location] | None:
        return files.paths if files is not None and files.size_bytes <= self._driver_bytes else None

    def close(self) -> None:
        """End the threads; a batch at work is finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _append_here(self, batch_id: int, paths: Sequence[Source]) -> int:
        self._admit(paths)
        self._attempts.begin(batch_id)
        staged = self._gold.stage(batch_id)
        running: deque[Future[None]] = deque()
        count = 0
        try:
            for piece in pieces(paths, self._flow.schema):
                count += piece.num_rows
                prepared = self._tenants.bounded(self._attempts.numbered(piece))
                running.append(self._pool.submit(self._bring, prepared, staged))
                if len(running) > self._threads:  # so many pieces are in memory, and one more that is being read
                    running.popleft().result()
            while running:
                running.popleft().result()
        except BaseException:
            wait(running)
            for file in staged.values():
                file.drop()
            raise
        self._attempts.keep(batch_id)
        self._gold.add(batch_id, staged)
        return count

    def _bring(self, piece: pa.Table, staged: Mapping[str, Staged]) -> None:
        """Compute one piece, and lay its rows down in the files that will be gold."""
        for table, rows in self._flow.compute(piece).items():
            if table in staged:
                staged[table].append(rows)

    def _admit(self, paths: Sequence[Source]) -> None:
        """Decide which of the batch's tenants are told apart, where there may not be room for all of them."""
        if not 0 < self._tenants.room < rows_in(paths):
            return
        found = pa.array([], pa.string())
        for piece in pieces(paths, pa.schema([self._flow.schema.field("tenant")])):
            more = pc.unique(piece.column("tenant")).cast(pa.string()).drop_null()
            found = pc.unique(pa.concat_arrays([found, more]))
            if len(found) > 2 * self._tenants.enough:
                found = found.take(pc.sort_indices(found)[: self._tenants.enough])
        self._tenants.admit(set(found.to_pylist()))

    def _append_by_executors(self, batch_id: int, batch: DataFrame, files: Files | None) -> int:
        if self._tenants.room:
            names = batch.select("tenant").where("tenant IS NOT NULL").distinct()
            few = names.orderBy("tenant").limit(self._tenants.enough).toArrow()
            self._tenants.admit(set(few.column("tenant").to_pylist()))
        self._attempts.begin(batch_id)
        with self._numbered(batch, files) as rows, self._kept(batch.sparkSession) as kept:
            self._attempts.keep(batch_id)
            if isinstance(self._gold.path(self._flow.writes[-1]), Remote):
                return add_from_executors(self._flow, rows, self._gold, batch_id, kept)
            return append_by_executors(self._flow, rows, self._gold.path, self._gold.query_id, batch_id, kept)

    def _numbered(self, batch: DataFrame, files: Files | None) -> AbstractContextManager[DataFrame]:
        if "attempt" not in self._flow.schema.names:
            return nullcontext(batch)
        return numbered(batch, files, self._attempts, self._flow.schema)

    @contextmanager
    def _kept(self, session: SparkSession) -> Iterator[Kept]:
        """The names of tenants that are told apart, where executors can see them."""
        names = self._tenants.kept()
        sent = None if names is None else session.sparkContext.broadcast(names)
        try:
            yield sent
        finally:
            if sent is not None:
                sent.destroy()
