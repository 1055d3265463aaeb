"""``sojourn analyze``: one process that turns bronze into gold until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from lake.files import only_one
from lake.store import Lake
from spark_analytics.catching_up.gaps import Gaps
from spark_analytics.gold import bytes_of, check_checkpoint, checkpoint_path, forget
from spark_analytics.runtime.options import cores_of, is_submitted
from spark_analytics.settings import AnalyzeSettings

log = logging.getLogger(__name__)

#: How often the queries are asked whether they still run, and, of those that end by themselves, whether they are done.
LOOK_SECONDS, LOOK_ONCE_SECONDS = 0.5, 0.1

#: Called after each batch with the rows of bronze that are done in this run.
Progress = Callable[[int], None]


def run(
    settings: AnalyzeSettings,
    lake_root: Path,
    stop: threading.Event,
    *,
    once: bool,
    rebuild: bool = False,
    progress: Progress | None = None,
) -> None:
    """Analyse what collectors write to the lake at ``lake_root`` until ``stop``; with ``once`` what is there now.

    Returns when stopped, or done. Raises UserError where another analysis runs on this lake, or gold and checkpoint
    do not belong together (``rebuild`` computes gold anew), SojournError for other failures; nothing is ever lost.
    """
    lake_root = lake_root.expanduser().absolute()
    lake = Lake(lake_root)
    lake.create()
    with only_one(lock_path(lake_root), "an analysis of this lake"):
        if rebuild:
            forget(lake_root)
        _analyse(settings, lake, stop, once=once, progress=progress or (_print_progress if once else _ignore))


def rebuild(settings: AnalyzeSettings, lake_root: Path) -> None:
    """Empty gold and forget what was read, so that the next run computes all of it from bronze."""
    lake_root = lake_root.expanduser().absolute()
    Lake(lake_root).create()
    with only_one(lock_path(lake_root), "an analysis of this lake"):
        forget(lake_root)


def rebuild_state(lake_root: Path, queue: str | None = None, settings: AnalyzeSettings | None = None) -> int:
    """Tell finished state anew from what gold holds, every second of it; how many rows that made.

    ``queue``: of this one alone, named BROKER/QUEUE. By ``settings`` executors fold queues side by side where there are
    more bytes of partials than `driver_bytes`. Raises UserError where an analysis runs on this lake, or there is no
    such queue.
    """
    from spark_analytics.state.writer import Writer

    lake_root = lake_root.expanduser().absolute()
    lake = Lake(lake_root)
    lake.create()
    with only_one(lock_path(lake_root), "an analysis of this lake"):
        if queue is None and settings is not None and bytes_of(lake, "partials") > settings.driver_bytes:
            rows = _rebuild_side_by_side(settings, lake)
            if rows is not None:
                return rows
        writer = Writer(lake_root, anew=queue is None)
        if queue is None:
            writer.step()
        else:
            broker, _, name = queue.partition("/")
            writer.rebuild(broker, name)
        writer.close()
    return writer.rows


def _rebuild_side_by_side(settings: AnalyzeSettings, lake: Lake) -> int | None:
    from spark_analytics.faults import explained, quieten
    from spark_analytics.runtime.session import build_session
    from spark_analytics.runtime.store import store_environment, store_jars, store_settings
    from spark_analytics.state.side_by_side import by_executors, tell_anew

    os.environ |= store_environment(lake.tables)  # for Java, which is our child
    session = build_session(
        "sojourn-analyze",
        master=settings.master,
        conf=store_settings(lake.tables) | spark_settings(settings),
        quick_start=settings.quick_start,
        jars=[] if is_submitted() else store_jars(lake.tables),
    )
    quieten(session)
    try:
        return tell_anew(lake.root, by_executors(session), lambda: session.sparkContext.defaultParallelism)
    except Exception as error:
        raise explained(error) from error
    finally:
        session.stop()


def lock_path(lake_root: Path) -> Path:
    """The lock that keeps a second analysis off the lake."""
    return Lake(lake_root).state_path("locks", "analyze.lock")


def _analyse(settings: AnalyzeSettings, lake: Lake, stop: threading.Event, *, once: bool, progress: Progress) -> None:
    # Imported here: a user's error above costs no seconds of loading Spark, and Java is on its way meanwhile.
    from spark_analytics.batches.flows import EVENTS, SUMMARIES
    from spark_analytics.runtime.jars import ensure_kafka_jars
    from spark_analytics.runtime.launch import begin_session
    from spark_analytics.runtime.store import store_environment, store_jars, store_settings

    gaps = Gaps(lake)
    required = gaps.check(EVENTS.writes)
    check_checkpoint(lake, gaps.live().checkpoint, EVENTS.writes, required=required)
    check_checkpoint(lake, checkpoint_path(lake.root, SUMMARIES.name), SUMMARIES.writes, required=False)
    tally = _Tally(progress)
    by_kafka = settings.transport.kind == "kafka"
    # Those of spark-submit are named to it, and what lists ours cannot be read in a wheel that it sends along.
    jars = [] if is_submitted() else [*(ensure_kafka_jars() if by_kafka else ()), *store_jars(lake.tables)]
    os.environ |= store_environment(lake.tables)  # for Java, which is our child
    conf = store_settings(lake.tables) | spark_settings(settings)
    loaded = "pyspark" in sys.modules  # then there may be a session, which is used
    ahead = None if loaded else begin_session(settings.master, conf, jars, quick_start=settings.quick_start)

    from spark_analytics.faults import explained, quieten
    from spark_analytics.job import Job
    from spark_analytics.runtime.session import build_session

    if ahead is not None and not ahead.wait(stop):
        return
    session = build_session(
        "sojourn-analyze",
        master=settings.master,
        conf=conf,
        quick_start=settings.quick_start,
        jars=jars,
        ahead=ahead,
    )
    quieten(session)
    landing = None
    try:
        if by_kafka:
            from spark_analytics.landing.job import LandingJob

            landing = LandingJob(session, settings, lake.root, once=once)
            if once:
                _until_done(landing.running, stop, LOOK_ONCE_SECONDS)
        job = Job(session, settings, lake.root, once=once, on_batch=tally.add)
        try:
            job.start()
            log.info("reading %s each %g s", lake.root, settings.trigger_interval_seconds)
            if landing is None or once:
                _until_done(job.running, stop, LOOK_ONCE_SECONDS if once else LOOK_SECONDS)
            else:
                _until_done(lambda: landing.running() and job.running(), stop, LOOK_SECONDS)
        except Exception as error:
            raise explained(error) from error
        finally:
            job.stop()
    finally:
        if landing is not None:
            landing.stop()
        session.stop()


def _until_done(running: Callable[[], bool], stop: threading.Event, look: float) -> None:
    while running() and not stop.wait(look):
        pass


def spark_settings(settings: AnalyzeSettings) -> dict[str, str]:
    """What the analytics ask of their Spark session."""
    here = cores_of(settings.master) is not None
    return {
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # Adaptive plans pay a planning round for each shuffle: expensive for batches of a few hundred rows.
        "spark.sql.adaptive.enabled": "false",
        # Beyond this many groups (128 by default) an aggregate that collects lists starts to sort instead of hash.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "200000",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        # How long a query that has had no batch yet waits before it looks again: behind one, it waits for news itself.
        "spark.sql.streaming.pollingDelay": "100ms",
        # Code would be generated anew for each batch's plan, which computes nothing: batches are computed in columns.
        **({"spark.sql.codegen.wholeStage": "false"} if here else {}),
    } | settings.spark


class _Tally:
    """How many rows are done, told onwards; queries report from threads of their own."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            self._progress(self._done)


def _print_progress(done: int) -> None:
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}{done:,} rows analysed", end=end, file=sys.stderr, flush=True)


def _ignore(done: int) -> None:
    """Nobody is watching."""
