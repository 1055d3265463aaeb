"""The streaming job: bronze, as it grows → gold, one idempotent append for each micro-batch.

Two queries share a session: events, which Spark aggregates, and summaries, which are partials already. Each has its
own checkpoint and numbers its own commits; neither keeps state in Spark.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lake.store import Lake
from lake.tables import EVENT_TYPES, PARTIALS
from spark_analytics import transforms
from spark_analytics.faults import explained
from spark_analytics.gold import Gold, Keeper, checkpoint_path
from spark_analytics.settings import AnalyzeSettings

log = logging.getLogger(__name__)

#: Summaries are rare, and say nothing new within a second.
SUMMARY_INTERVAL_SECONDS = 1.0

#: Told, after each batch, the rows of bronze in it.
OnBatch = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Flow:
    """One way from a bronze table to gold: what to read of it, and the rows that a batch gives each gold table."""

    name: str
    source: str
    columns: tuple[str, ...]
    writes: tuple[str, ...]
    compute: Callable[[DataFrame], tuple[dict[str, pa.Table], int]]
    slowest_look: float


def _events(batch: DataFrame) -> tuple[dict[str, pa.Table], int]:
    gathered = transforms.gather(transforms.normalise(batch)).toArrow()
    rows = {"partials": transforms.partials(gathered), "marks": transforms.marks(gathered)}
    return rows, sum(pc.sum(gathered.column(event_type)).as_py() or 0 for event_type in EVENT_TYPES)


def _summaries(batch: DataFrame) -> tuple[dict[str, pa.Table], int]:
    rows = transforms.summary_partials(batch).toArrow()
    return {"partials": rows}, rows.num_rows


EVENTS = Flow("events", "message_events", transforms.EVENT_COLUMNS, ("partials", "marks"), _events, 0.0)
SUMMARIES = Flow(
    "summaries",
    "event_summaries",
    tuple(PARTIALS.schema.names),
    ("partials",),
    _summaries,
    SUMMARY_INTERVAL_SECONDS,
)


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
        if self._awaiting_summaries and self._lake.ensure(SUMMARIES.source).file_uris():
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
        self._keeper.close()

    def _start(self, flow: Flow) -> StreamingQuery:
        identity: Future[str] = Future()
        interval = max(self._settings.trigger_interval_seconds, flow.slowest_look)
        stream = (
            self._session.readStream.format("delta")
            .option("maxBytesPerTrigger", self._settings.max_bytes_per_trigger)
            .option("ignoreDeletes", "true")  # old days of bronze may be dropped
            .load(str(self._lake.path(flow.source)))
            .select(*flow.columns)
        )
        writer = (
            stream.writeStream.queryName(f"sojourn-{flow.name}")
            .option("checkpointLocation", str(checkpoint_path(self._lake.root, flow.name)))
            .foreachBatch(self._handler(flow, identity))
        )
        writer = (
            writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=f"{interval} seconds")
        )
        query = writer.start()
        identity.set_result(str(query.id))
        return query

    def _handler(self, flow: Flow, identity: Future[str]) -> Callable[[DataFrame, int], None]:
        gold: Gold | None = None

        def handle(batch: DataFrame, batch_id: int) -> None:
            nonlocal gold
            with self._working:
                if self._stopping.is_set():
                    raise _BrokenOff
                try:
                    started = time.monotonic()
                    gold = gold or Gold(self._lake.root, identity.result(), flow.writes)
                    if gold.holds(batch_id):
                        log.info("flow=%s batch=%d already in gold", flow.name, batch_id)
                        return
                    rows, count = flow.compute(batch)
                    gold.write(batch_id, rows)
                except Exception as error:
                    self._cause = self._cause or error
                    # Spark parses what we raise by regular expressions, which a long trace overflows: keep it short.
                    raise _BrokenOff from None
            self._report(flow, batch_id, count, rows, time.monotonic() - started)

        return handle

    def _report(self, flow: Flow, batch_id: int, count: int, rows: dict[str, pa.Table], seconds: float) -> None:
        self._keeper.count_batch()
        if count == 0:
            return
        written = " ".join(f"{table}={written.num_rows}" for table, written in rows.items())
        log.info("flow=%s batch=%d rows=%d %s seconds=%.3f", flow.name, batch_id, count, written, seconds)
        self._on_batch(count)


class _BrokenOff(Exception):
    """The batch was not finished, so Spark must not count it as done."""
