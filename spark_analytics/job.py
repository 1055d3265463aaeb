"""The streaming job: bronze, as it grows → gold, one idempotent append for each micro-batch.

Two queries share a session: events, which Spark aggregates, and summaries, which are partials already. Each has its
own checkpoint and numbers its own commits; neither keeps state in Spark.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lake.store import Lake
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import files_of
from spark_analytics.batches.flows import EVENTS, SUMMARIES, Flow
from spark_analytics.batches.tenants import Tenants
from spark_analytics.faults import explained
from spark_analytics.gold import Gold, checkpoint_path
from spark_analytics.maintenance.keeper import Keeper
from spark_analytics.runtime.options import cores_of
from spark_analytics.settings import AnalyzeSettings

log = logging.getLogger(__name__)

#: Told, after each batch, the rows of bronze in it.
OnBatch = Callable[[int], None]


class Job:
    """The running queries. Events are read from the start, summaries from when a collector has written the first."""

    def __init__(
        self, session: SparkSession, settings: AnalyzeSettings, root: Path, *, once: bool, on_batch: OnBatch
    ) -> None:
        self._session = session
        self._settings = settings
        self._lake = Lake(root)
        self._once = once
        self._on_batch = on_batch
        # Post-mortems keep their seconds: only the job that runs on rolls up.
        self._keeper = Keeper(root, 0 if once else settings.maintain_every, settings.retention())
        self._tenants = Tenants(Lake(root), settings.most_tenants)
        self._engines: list[Engine] = []
        self._stopping = threading.Event()
        self._working = threading.Lock()
        self._queries: list[StreamingQuery] = []
        self._awaiting_summaries = True
        self._cause: BaseException | None = None

    def start(self) -> None:
        """Start reading; returns at once."""
        self._queries.append(self._start(EVENTS))
        self._start_summaries()

    def _start_summaries(self) -> None:
        # An idle query is not free: it doubles what starting costs, and looks at its table each second.
        if self._awaiting_summaries and self._lake.ensure(SUMMARIES.source.name).file_uris():
            self._awaiting_summaries = False
            self._queries.append(self._start(SUMMARIES))

    def running(self) -> bool:
        """Whether any query still runs; an error in one of them is raised here, as one of ours."""
        for query in self._queries:
            if not query.isActive and (error := query.exception()) is not None:
                raise explained(self._cause or error) from error
        if not self._once:
            self._start_summaries()
        return any(query.isActive for query in self._queries)

    def stop(self, grace_seconds: float = 5.0) -> None:
        """Let the batch at work finish, then stop. One that needs longer is broken off: the next run redoes it."""
        self._stopping.set()
        deadline = time.monotonic() + grace_seconds
        if self._working.acquire(timeout=grace_seconds):
            self._working.release()
        for query in self._queries:
            try:
                # Spark notes the batch as done a moment after we let go of it.
                while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                    time.sleep(0.01)
                query.stop()
            except Exception as error:  # a batch that stop() interrupts ends in whatever it was doing
                log.debug("while stopping: %s", error)
        for engine in self._engines:
            engine.close()
        self._keeper.close()

    def _start(self, flow: Flow) -> StreamingQuery:
        started: Future[StreamingQuery] = Future()
        interval = max(self._settings.trigger_interval_seconds, flow.slowest_look)
        stream = (
            self._session.readStream.format("delta")
            .option("maxBytesPerTrigger", self._settings.max_bytes_per_trigger)
            .option("ignoreDeletes", "true")  # old days of bronze may be dropped
            .load(str(self._lake.path(flow.source.name)))
            .select(*flow.schema.names)
        )
        writer = (
            stream.writeStream.queryName(f"sojourn-{flow.name}")
            .option("checkpointLocation", str(checkpoint_path(self._lake.root, flow.name)))
            .foreachBatch(self._handler(flow, started))
        )
        writer = (
            writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=f"{interval} seconds")
        )
        query = writer.start()
        started.set_result(query)
        return query

    def _handler(self, flow: Flow, started: Future[StreamingQuery]) -> Callable[[DataFrame, int], None]:
        engine: Engine | None = None

        def handle(batch: DataFrame, batch_id: int) -> None:
            nonlocal engine
            with self._working:
                if self._stopping.is_set():
                    raise _BrokenOff
                try:
                    query = started.result()
                    engine = engine or self._engine(flow, query)
                    count = engine.process(batch_id, batch, files_of(query, batch_id))
                except Exception as error:
                    self._cause = self._cause or error
                    # Spark parses what we raise by regular expressions, which a long trace overflows: keep it short.
                    raise _BrokenOff from None
            self._keeper.count_batch()
            if count:
                self._on_batch(count)

        return handle

    def _engine(self, flow: Flow, query: StreamingQuery) -> Engine:
        engine = Engine(
            flow,
            Gold(self._lake.root, str(query.id), flow.writes),
            threads=cores_of(self._settings.master) or os.cpu_count() or 1,
            driver_bytes=self._settings.driver_bytes,
            tenants=self._tenants,
            attempts=Attempts(checkpoint_path(self._lake.root, f"{flow.name}-attempts")),
        )
        self._engines.append(engine)
        return engine


class _BrokenOff(Exception):
    """The batch was not finished, so Spark must not count it as done."""
