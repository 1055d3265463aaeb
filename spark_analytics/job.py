"""The streaming job: bronze, as it grows → gold, one idempotent append for each micro-batch.

Two queries share a session: events, which Spark aggregates, and summaries, which are partials already. Each has its
own checkpoint and numbers its own commits; neither keeps state in Spark.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from lake.log import log_entry
from lake.remote import Remote, spark_name
from lake.store import Lake
from spark_analytics.batches.attempts import Attempts
from spark_analytics.batches.engine import Engine
from spark_analytics.batches.files import Files, files_of
from spark_analytics.batches.flows import EVENTS, SUMMARIES, Flow
from spark_analytics.batches.tenants import Tenants
from spark_analytics.catching_up.filling import Filling, Process
from spark_analytics.catching_up.gaps import Gap, Gaps, attempts_of
from spark_analytics.catching_up.log import in_log, is_young
from spark_analytics.catching_up.opening import open_gap
from spark_analytics.catching_up.places import Checkpoint
from spark_analytics.catching_up.turns import Turns
from spark_analytics.faults import explained
from spark_analytics.gold import Gold, checkpoint_path
from spark_analytics.maintenance.runner import MaintenanceRunner
from spark_analytics.maintenance.streams import log_needed
from spark_analytics.mirrored import MirroredLog
from spark_analytics.pace import Pace
from spark_analytics.runtime.options import cores_of
from spark_analytics.settings import AnalyzeSettings
from spark_analytics.state.runner import StateRunner
from spark_analytics.tail import Tail

log = logging.getLogger(__name__)

#: Into so many pieces goes, of history, what would make one batch: the newest events wait for one piece at most.
PIECES = 12

#: A batch that is computed here takes so many bytes of bronze at most: what it adds is finished beside the next one.
BESIDE_BYTES = 32 << 20

#: Without it Spark scans what a stream is asked for though no row can come of it. It is off by default for the sake of
#: streams that keep state, of which we have none.
_PRUNED = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"

#: What Delta says where the log that it sees lacks a version: the one with which the stream goes on, or one between.
_MISSED = re.compile(r"DELTA_MISSING_FILES_UNEXPECTED_VERSION.*?from version (\d+)", re.DOTALL)
_BROKEN = re.compile(r"DELTA_VERSIONS_NOT_CONTIGUOUS.*?\(([\d, ]+)\)", re.DOTALL)

#: So often in a row a query is begun again because of that.
OVERLOOKED = 5

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
        self._maintenance = MaintenanceRunner(root, 0 if once else settings.maintain_every, settings.retention())
        self._state = StateRunner(root, whole=once)
        self._tenants = Tenants(Lake(root), settings.most_tenants)
        self._engines: list[Engine] = []
        self._stopping = threading.Event()
        self._turns = Turns()
        self._gaps = Gaps(self._lake)
        self._live = self._gaps.live()
        self._filling: Filling | None = None
        self._fresh = threading.Event()  # a batch of the newest events is in gold
        self._queries: dict[Flow, StreamingQuery] = {}
        self._mirrors: dict[Flow, MirroredLog] = {}
        self._hollow: set[Flow] = set()  # whose running query has Spark plan no rows: see _start
        self._whole: set[Flow] = set()  # who had a batch that only Spark can read
        self._awaiting_summaries = True
        self._summaries_seen = -1  # the version of their table when it was last looked at
        self._cause: BaseException | None = None

    def start(self) -> None:
        """Start reading; returns at once. After a long time away the newest events come first, history beside them."""
        if not self._once and self._settings.newest_first_after_bytes:
            open_gap(self._lake, self._gaps, EVENTS.writes, self._settings.newest_first_after_bytes)
        self._gaps.tell()
        self._live = self._gaps.live()
        self._state.start()  # what batches add is finished beside those that follow
        self._queries[EVENTS] = self._start(EVENTS)
        self._start_summaries()
        if self._gaps.open():
            piece_bytes = self._settings.max_bytes_per_trigger // PIECES
            self._filling = Filling(self._lake.root, self._process_for, self._turns, piece_bytes)

    def _start_summaries(self) -> None:
        # An idle query is not free: it doubles what starting costs.
        if not self._awaiting_summaries:
            return
        version = self._summaries_seen
        if version < 0 or log_entry(self._lake.path(SUMMARIES.source.name), version + 1).exists():
            table = self._lake.ensure(SUMMARIES.source.name)
            self._summaries_seen = table.version()
            if table.file_uris():
                self._awaiting_summaries = False
                self._queries[SUMMARIES] = self._start(SUMMARIES)

    def running(self) -> bool:
        """Whether any query still runs; an error in one of them is raised here, as one of ours."""
        active = False
        for flow, query in list(self._queries.items()):
            if query.isActive:  # looked at once: what ends in an error behind this look is told by the next one
                active = True
                continue
            if (error := query.exception()) is None:
                continue
            if self._cause is not None:
                raise explained(self._cause) from error
            if flow in self._whole & self._hollow:
                log.info("flow=%s goes on: from here on Spark reads its rows", flow.name)
                self._queries[flow] = self._start(flow)
            else:
                self._queries[flow] = self._start(flow, error)
            active = True
        if not self._once:
            self._start_summaries()
        filling = self._filling is not None and self._fill(self._filling)
        return filling or active

    def _overlooked(self, flow: Flow, error: Exception) -> bool:
        """Whether Delta misses a commit that is there: its look at a long log is not one instant, and writers go on."""
        missed, broken = _MISSED.search(str(error)), _BROKEN.search(str(error))
        seen = {int(number) for number in broken[1].split(",")} if broken else set()
        lacking = {int(missed[1])} if missed else set(range(min(seen, default=0), max(seen, default=0))) - seen
        return bool(lacking) and all(in_log(self._lake.path(flow.source.name), version) for version in lacking)

    def _fill(self, filling: Filling) -> bool:
        """Begin with history once the newest events have had their turn; whether there is history to come."""
        live = self._queries[EVENTS]
        # It waits, or ends, when there is nothing newer. Where events come fast it never does.
        idle = not live.isActive or live.status["message"].startswith("Waiting")
        if not filling.begun and (idle or self._fresh.is_set()):
            filling.start()
        if filling.error is not None:
            raise explained(filling.error) from filling.error
        return filling.running()

    def stop(self, grace_seconds: float = 5.0) -> None:
        """Let the batch at work finish, then stop. One that needs longer is broken off: the next run redoes it."""
        self._stopping.set()
        deadline = time.monotonic() + grace_seconds
        if self._filling is not None:
            self._filling.stop()
        self._turns.wait_idle(grace_seconds)
        for query in self._queries.values():
            try:
                # Spark notes the batch as done a moment after we let go of it.
                while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                    time.sleep(0.01)
                query.stop()
            except Exception as error:  # a batch that stop() interrupts ends in whatever it was doing
                log.debug("while stopping: %s", error)
        for engine in self._engines:
            engine.close()
        for mirror in self._mirrors.values():
            mirror.close()
        self._maintenance.close()
        self._state.close()

    def _start(self, flow: Flow, ended_by: Exception | None = None) -> StreamingQuery:
        """Start reading ``flow``, where its checkpoint says: again, where a commit was overlooked. Raises anything else
        that it comes to, or that its query was ``ended_by`` before.
        """
        for _ in range(OVERLOOKED + 1):
            if ended_by is not None:
                if not self._overlooked(flow, ended_by):
                    break
                log.info("flow=%s is begun again: a commit was overlooked while others were written", flow.name)
            try:
                return self._begun(flow)
            except Exception as error:
                ended_by = error
        assert ended_by is not None
        raise ended_by

    def _begun(self, flow: Flow) -> StreamingQuery:
        """Start reading ``flow``.

        Where batches are computed here, from the files that Spark says are in them (:func:`files_of`), Spark is asked
        for none of their rows: before a batch is handed over it would run a query to choose among its files, and lay
        out a scan of them, which took half of its time. A batch that cannot be read here begins the query anew, with
        its rows.
        """
        most = self._settings.max_bytes_per_trigger
        hollow = flow not in self._whole and most <= self._settings.driver_bytes
        (self._hollow.add if hollow else self._hollow.discard)(flow)
        mirror = self._mirror(flow) if hollow else None
        started: Future[StreamingQuery] = Future()
        stream = (
            self._session.readStream.format("delta")
            .option("maxBytesPerTrigger", min(most, BESIDE_BYTES) if hollow else most)
            .option("ignoreDeletes", "true")  # old days of bronze may be dropped
            .options(**self._beginning(flow))
            .load(spark_name(self._lake.path(flow.source.name) if mirror is None else mirror.folder))
            .select(*flow.schema.names)
        )
        if hollow:
            self._session.conf.set(_PRUNED, "true")
            stream = stream.where("false")
        writer = (
            stream.writeStream.queryName(f"sojourn-{flow.name}")
            .option("checkpointLocation", str(self._checkpoint(flow)))
            .foreachBatch(self._handler(flow, started, mirror, hollow=hollow))
        )
        # As soon as the batch before lets go, which rests until there is something to do.
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime="0 seconds")
        query = writer.start()
        started.set_result(query)
        return query

    def _mirror(self, flow: Flow) -> MirroredLog | None:
        """What Spark follows in place of the log of ``flow``, if that is in an object store: recreated."""
        place, creator = self._lake.path(flow.source.name), None
        if not isinstance(place, Remote) or (creator := place.store.creator) is None:
            return None
        mirror = self._mirrors.get(flow) or MirroredLog(place, creator, self._lake.state_path("mirrors", flow.name))
        self._mirrors[flow] = mirror
        since = log_needed(self._checkpoint(flow), self._table_id(flow))
        if since is None and (starts := self._beginning(flow).get("startingVersion")):
            since = starts - 1
        mirror.begin(since)
        return mirror

    def _handler(
        self, flow: Flow, started: Future[StreamingQuery], mirror: MirroredLog | None, *, hollow: bool
    ) -> Callable[[DataFrame, int], None]:
        engine: Engine | None = None
        tail: Tail | None = None
        folder = None if mirror is None else mirror.folder
        interval = max(self._settings.trigger_interval_seconds, flow.slowest_look)
        pace = None if self._once else Pace(mirror or self._lake.path(flow.source.name), interval, self._stopping)

        def bring(batch: DataFrame, batch_id: int) -> None:
            nonlocal engine, tail
            query = started.result()
            engine = engine or self._engine(flow, str(query.id), attempts_of(self._checkpoint(flow)))
            tail = tail or self._tail(flow, engine, folder)
            with self._turns.hurried():
                if self._stopping.is_set():
                    raise _BrokenOff
                files = files_of(query, batch_id, self._lake.path(flow.source.name), folder)
                if hollow and not engine.reads(files):
                    self._whole.add(flow)
                    raise _BrokenOff
                count: int | None = engine.process(batch_id, lambda: batch, files, tail.taken(batch_id))
                unread = tail.begin(batch_id)
            self._done(count)
            if flow is EVENTS:
                self._fresh.set()
            while pace is not None and (newest := pace.rest(unread, count or 0)) is not None:
                with self._turns.hurried():
                    count = tail.read_on(newest) if hollow else None
                if count is None:  # it is for a batch of Spark's, which is begun
                    pace.settle(newest)
                    return
                self._done(count)
                unread = tail.next

        def handle(batch: DataFrame, batch_id: int) -> None:
            try:
                bring(batch, batch_id)
            except _BrokenOff:
                raise
            except Exception as error:
                self._cause = self._cause or error
                # Spark parses what we raise by regular expressions, which a long trace overflows: keep it short.
                raise _BrokenOff from None

        return handle

    def _tail(self, flow: Flow, engine: Engine, mirror: Path | None) -> Tail:
        """What reads on behind the batches of ``engine``."""
        table = self._lake.path(flow.source.name)
        return Tail(engine, table, mirror or table, self._checkpoint(flow), self._table_id(flow))

    def _table_id(self, flow: Flow) -> str:
        return str(self._lake.ensure(flow.source.name).metadata().id)

    def _process_for(self, gap: Gap) -> Process:
        """What brings pieces of ``gap`` into gold: the engine of the query from which it took over."""
        engine = self._engine(EVENTS, gap.gap_id, checkpoint_path(self._lake.root, gap.attempts))

        def process(number: int, files: Files) -> int:
            count = engine.process(number, lambda: self._frame(files), files)
            self._done(count)
            return count

        return process

    def _frame(self, files: Files) -> DataFrame:
        """The events in plain files, for executors."""
        return self._session.read.schema(from_arrow_schema(EVENTS.schema)).parquet(*files.uris)

    def _done(self, count: int | None) -> None:
        self._maintenance.count_batch()
        self._state.wake(count)
        if count:
            self._on_batch(count)

    def _checkpoint(self, flow: Flow) -> Path:
        return self._live.checkpoint if flow is EVENTS else checkpoint_path(self._lake.root, flow.name)

    def _beginning(self, flow: Flow) -> dict[str, int]:
        """Where a query without notes of its own begins, if not with the table as it is.

        Of a young one it reads the commits: to list the files of a table as it is Spark runs queries, its first ones,
        which keep a start waiting for seconds.
        """
        if Checkpoint(self._checkpoint(flow)).planned():
            return {}
        if flow is EVENTS and self._live.starts is not None:
            return {"startingVersion": self._live.starts}
        place = self._lake.path(flow.source.name)
        return {"startingVersion": 0} if not isinstance(place, Remote) and is_young(place) else {}

    def _engine(self, flow: Flow, app_id: str, notes: Path) -> Engine:
        """An engine that commits as ``app_id`` and keeps its notes of attempts in the folder ``notes``."""
        engine = Engine(
            flow,
            Gold(self._lake.root, app_id, flow.writes),
            threads=cores_of(self._settings.master) or os.cpu_count() or 1,
            driver_bytes=self._settings.driver_bytes,
            tenants=self._tenants,
            attempts=Attempts(notes),
            told=self._state.comes,
        )
        self._engines.append(engine)
        return engine


class _BrokenOff(Exception):
    """The batch was not finished, so Spark must not count it as done."""
