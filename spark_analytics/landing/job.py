"""The streaming queries that bring Kafka's records into bronze, one a topic, each from when its topic is first used."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lake.store import Lake
from lake.tables import MESSAGE_EVENTS, TABLES
from spark_analytics.faults import explained, first_line, passing
from spark_analytics.landing.cluster import Cluster, Topic
from spark_analytics.landing.land import Landing, landed_id
from spark_analytics.landing.parse import parse
from spark_analytics.settings import AnalyzeSettings

log = logging.getLogger(__name__)

BRONZE_TABLES = tuple(name for name, spec in TABLES.items() if spec.layer == "bronze")
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 3.0


class LandingJob:
    """The running queries. Kafka may go away and come back: they are then started anew."""

    def __init__(self, session: SparkSession, settings: AnalyzeSettings, root: Path, *, once: bool) -> None:
        self._session = session
        self._settings = settings
        self._transport = settings.transport
        self._lake = Lake(root)
        self._once = once
        self._client = self._transport.client()
        self._cluster: Cluster | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._tables = {f"{self._transport.prefix}.{name}": name for name in BRONZE_TABLES}
        self._look_at = 0.0
        self._stopping = threading.Event()
        self._working: dict[str, threading.Lock] = {name: threading.Lock() for name in BRONZE_TABLES}
        self._causes: dict[str, BaseException] = {}

    def running(self) -> bool:
        """Whether there is, or may come, more to land; starts what has become possible, raises what somebody must fix.

        With ``once``: until all that is in the topics now has been landed.
        """
        for topic, query in list(self._queries.items()):
            if not query.isActive and (error := query.exception()) is not None:
                cause = self._causes.pop(topic, None) or error
                if self._once or not passing(cause):
                    raise explained(cause) from error
                log.warning("topic %s cannot be read now, it is tried again: %s", topic, explained(cause))
                del self._queries[topic]
                self._look_at = time.monotonic() + PAUSE_SECONDS
        if not self._once or not self._queries:
            self._start_more()
        return not self._once or any(query.isActive for query in self._queries.values())

    def stop(self, grace_seconds: float = 5.0) -> None:
        """Let the batches at work finish, then stop. What is broken off is read again by the next run."""
        self._stopping.set()
        deadline = time.monotonic() + grace_seconds
        for lock in self._working.values():
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                lock.release()
        for query in self._queries.values():
            try:
                query.stop()
            except Exception as error:  # a batch that stop() interrupts ends in whatever it was doing
                log.debug("while stopping: %s", error)
        if self._cluster is not None:
            self._cluster.close()

    def _start_more(self) -> None:
        missing = self._tables.keys() - self._queries.keys()
        if not missing or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            self._cluster = self._cluster or Cluster(self._session, self._client)
            found = self._cluster.topics(set(missing))
        except Exception as error:
            if self._once or not passing(error):
                raise explained(error) from error
            log.warning(
                "Kafka at %s does not answer, it is tried again: %s", self._transport.bootstrap, first_line(error)
            )
            self._look_at = time.monotonic() + PAUSE_SECONDS
            return
        for topic in found:
            self._queries[topic.name] = self._start(topic, self._tables[topic.name])

    def _start(self, topic: Topic, name: str) -> StreamingQuery:
        transport = self._transport
        # A topic that was recreated is another topic: its offsets begin again, and so does its checkpoint.
        checkpoint = self._lake.state_path("checkpoints", "land", f"{topic.name}-{topic.id}")
        stream = (
            self._session.readStream.format("kafka")
            .options(**{f"kafka.{key}": value for key, value in self._client.items()})
            .option("subscribe", topic.name)
            .options(**self._start_of(topic, name))
            .option("maxOffsetsPerTrigger", transport.max_offsets_per_trigger)
            .option("failOnDataLoss", str(transport.fail_on_data_loss).lower())
            .option("kafka.isolation.level", "read_committed")  # what an unfinished transaction holds is not there yet
            .load()
        )
        interval = self._settings.trigger_interval_seconds
        if name != MESSAGE_EVENTS.name:
            interval = max(interval, LOOK_SECONDS)
        writer = (
            parse(stream, TABLES[name])  # here, once: its plan costs more than a small batch
            .writeStream.queryName(f"sojourn-land-{name}")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self._handler(topic, name))
        )
        writer = (
            writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=f"{interval} seconds")
        )
        log.info("landing topic %s", topic.name)
        return writer.start()

    def _start_of(self, topic: Topic, name: str) -> dict[str, str]:
        """Where to begin without a checkpoint: behind what the lake holds, if it holds any of the topic."""
        landed = {one: self._lake.committed(name, landed_id(topic.id, one)) for one in topic.partitions}
        if any(landed.values()):
            first = -2  # Kafka's earliest: a partition of which nothing was landed
            places = {str(one): first if at is None else at for one, at in landed.items()}
            return {"startingOffsets": json.dumps({topic.name: places})}
        begin = self._transport.starting_offsets
        if isinstance(begin, str):
            return {"startingOffsets": begin}
        # A partition that took nothing since then is begun at its end.
        millis = str(round(begin.timestamp() * 1000))
        return {"startingTimestamp": millis, "startingOffsetsByTimestampStrategy": "latest"}

    def _handler(self, topic: Topic, name: str) -> Callable[[DataFrame, int], None]:
        landing: Landing | None = None

        def handle(batch: DataFrame, batch_id: int) -> None:
            nonlocal landing
            with self._working[name]:
                if self._stopping.is_set():
                    raise _BrokenOff
                try:
                    started = time.monotonic()
                    landing = landing or Landing(
                        Lake(self._lake.root), name, topic.name, topic.id, self._transport.compact_every
                    )
                    rows, rejected = landing.write(batch.toArrow())
                except Exception as error:
                    self._causes.setdefault(topic.name, error)
                    # Spark parses what we raise by regular expressions, which a long trace overflows: keep it short.
                    raise _BrokenOff from None
            if rejected:
                log.warning("topic %s: %d records are no rows of %s: see rejected_records", topic.name, rejected, name)
            seconds = time.monotonic() - started
            log.info("landed=%s batch=%d rows=%d rejected=%d seconds=%.3f", name, batch_id, rows, rejected, seconds)

        return handle


class _BrokenOff(Exception):
    """The batch was not finished, so Spark must not count it as done."""
