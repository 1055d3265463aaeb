"""Raw events through the whole stream, beside a plain, warm Spark scan and count of the same files."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.analytics_parts.making import lives
from benchmarks.figures import Figure
from lake.store import Lake
from spark_analytics.faults import quieten
from spark_analytics.gold import forget
from spark_analytics.job import Job
from spark_analytics.run import spark_settings
from spark_analytics.runtime.session import build_session
from spark_analytics.settings import AnalyzeSettings

EVENTS, FILES, RATE, TENANTS = 6_000_000, 20, 10_000.0, 1_000


def measure(scale: float) -> Iterator[Figure]:
    """``throughput_ratio`` of the best of several runs each, and what both did."""
    settings = AnalyzeSettings()
    session = build_session("bench-analytics", conf=spark_settings(settings))
    quieten(session)
    try:
        with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
            lake = Lake(Path(folder) / "lake")
            lake.create()
            written = _fill(lake, int(EVENTS * scale))
            plain = written / min(_seconds(lambda: _count(session, lake)) for _ in range(5))
            whole = written / min(_seconds(lambda: _stream(session, settings, lake)) for _ in range(4))
            before = _own_processor_seconds()
            _stream(session, settings, lake)
            own = (_own_processor_seconds() - before) / written
    finally:
        session.stop()
    yield Figure("plain_scan_and_count", plain, "events/s")
    yield Figure("whole_analytics", whole, "events/s", plain)
    yield Figure("throughput_ratio", whole / plain, "1", 1.0)
    yield Figure("python_processor_microseconds_an_event", own * 1e6, "us")


def _fill(lake: Lake, count: int) -> int:
    share = count // FILES // 3
    for number in range(FILES):
        begins = 1_760_000_000 + number * share * 3 / RATE
        lake.append("message_events", lives(share, begins=begins, rate=RATE, tenants=TENANTS, seed=number))
    return share * 3 * FILES


def _count(session: SparkSession, lake: Lake) -> None:
    frame = session.read.format("delta").load(str(lake.path("message_events")))
    frame.groupBy("queue", "tenant").count().toArrow()


def _stream(session: SparkSession, settings: AnalyzeSettings, lake: Lake) -> None:
    forget(lake.root)
    job = Job(session, settings, lake.root, once=True, on_batch=lambda rows: None)
    job.start()
    while job.running():
        time.sleep(0.02)
    job.stop()


def _own_processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
