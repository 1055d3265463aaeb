"""A micro-batch → rows of gold, behind one interface: here while its files are few, by Spark's executors beyond.

Both run the same functions (:mod:`spark_analytics.transforms`). Here no job is scheduled and no row changes its shape
on the way from Parquet to NumPy; executors share the work of a batch that is too large for one process: docs/adr/0009.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from lake.remote import Location, Remote
from lake.staged import Staged
from lake.tables import PARTIALS
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
    that nobody numbered. A batch gives the same rows either way. ``told`` hears of partials that were computed here.
    """

    def __init__(
        self,
        flow: Flow,
        gold: Gold,
        *,
        threads: int,
        driver_bytes: int,
        tenants: Tenants,
        attempts: Attempts,
        told: Callable[[pa.Table], None] = lambda _: None,
    ) -> None:
        self._flow = flow
        #: Where its batches go.
        self.gold = gold
        self._threads = threads
        self._driver_bytes = driver_bytes
        self._tenants = tenants
        self._attempts = attempts
        self._told = told
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    def process(
        self, batch_id: int, batch: Callable[[], DataFrame], files: Files | None, taken: Collection[str] = ()
    ) -> int:
        """Bring a batch into gold, once; the records in it. ``files``, if known, hold its rows and no others.

        ``batch`` gives the rows, and is asked only where executors are to compute them. Files with the names ``taken``
        are in gold already.
        """
        if self.gold.holds(batch_id):
            log.info("flow=%s batch=%d already in gold", self._flow.name, batch_id)
            return 0
        started = time.monotonic()
        paths = self._paths(files)
        if paths is not None and files is not None:
            paths = [path for path in paths if path.name not in taken]
            count = self._append_here(self.gold, (batch_id, -1), fetched(paths, files.size_bytes))
        else:
            rows = batch()
            count = self._append_by_executors(batch_id, _without(rows, taken) if taken else rows, files)
        if count:
            where, seconds = "executors" if paths is None else "driver", time.monotonic() - started
            log.info("flow=%s batch=%d by=%s rows=%d seconds=%.3f", self._flow.name, batch_id, where, count, seconds)
        return count

    def read_on(self, gold: Gold, batch_id: int, version: int, files: Files) -> int:
        """Bring ``files``, which came behind the open batch ``batch_id``, into ``gold``; the records in them.

        ``gold`` numbers such commits by the ``version`` of bronze that is reached.
        """
        started, paths = time.monotonic(), files.paths
        assert paths is not None
        count = self._append_here(gold, (batch_id, version), fetched(paths, files.size_bytes))
        seconds = time.monotonic() - started
        log.info("flow=%s version=%d by=driver rows=%d seconds=%.3f", self._flow.name, version, count, seconds)
        return count

    def forget(self, batch_id: int, beyond: int) -> None:
        """Gold has what came behind ``batch_id`` up to version ``beyond``: notes of more count for nothing."""
        self._attempts.forget(batch_id, beyond)

    def reads(self, files: Files | None) -> bool:
        """Whether a batch of these files is computed here, so that its rows are asked of nobody."""
        return self._paths(files) is not None

    def _paths(self, files: Files | None) -> Sequence[Location] | None:
        return files.paths if files is not None and files.size_bytes <= self._driver_bytes else None

    def close(self) -> None:
        """End the threads; a batch at work is finished first."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _append_here(self, gold: Gold, noted: tuple[int, int], paths: Sequence[Source]) -> int:
        """``noted``: a batch and −1, or the open batch and the version that is reached behind it."""
        number = noted[0] if noted[1] < 0 else noted[1]
        self._admit(paths)
        self._attempts.begin(*noted)
        staged = gold.stage(number)
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
        self._attempts.keep(*noted)
        gold.add(number, staged)
        return count

    def _bring(self, piece: pa.Table, staged: Mapping[str, Staged]) -> None:
        """Compute one piece, and lay its rows down in the files that will be gold."""
        for table, rows in self._flow.compute(piece).items():
            if table in staged:
                staged[table].append(rows)
                if table == PARTIALS.name:
                    self._told(rows)

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
            if isinstance(self.gold.path(self._flow.writes[-1]), Remote):
                return add_from_executors(self._flow, rows, self.gold, batch_id, kept)
            return append_by_executors(self._flow, rows, self.gold.path, self.gold.query_id, batch_id, kept)

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


def _without(rows: DataFrame, taken: Collection[str]) -> DataFrame:
    """``rows`` but for those of the files with these names, which no two files share."""
    name = sql.element_at(sql.split(sql.input_file_name(), "/"), -1)
    return rows.where(~name.isin(*taken))
