"""Analytics: raw events through the whole stream, against a plain Spark count of the same files; and freshness.

Prints one JSON object a line: {"figure", "value", "unit", "baseline"}. Run it by `make bench-analytics`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lake.store import Lake
from lake.tables import TIMESTAMP
from spark_analytics.faults import quieten
from spark_analytics.gold import forget
from spark_analytics.job import Job
from spark_analytics.run import spark_settings
from spark_analytics.runtime.session import build_session
from spark_analytics.settings import AnalyzeSettings

QUEUES, TENANTS, RATE, FILES = 20, 1_000, 10_000, 10
FEED_SECONDS, FEED_INTERVAL, FEED_EVENTS = 30.0, 0.2, 100  # an event lake that grows by 500 events/s
WARM_UP_SHARE = 0.5


def main() -> None:
    """Fill a lake, measure, print, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_500_000)
    events = parser.parse_args().events
    settings = AnalyzeSettings()
    session = build_session("bench-analytics", conf=spark_settings(settings))
    quieten(session)
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake = Lake(Path(folder) / "lake")
        lake.create()
        written = _fill(lake, events)
        plain = written / min(_seconds(lambda: _count(session, lake)) for _ in range(4))
        whole = written / min(_seconds(lambda: _stream(session, settings, lake)) for _ in range(3))
        _print("plain_scan_and_count", plain, "events/s", None)
        _print("whole_analytics", whole, "events/s", plain)
        _print("throughput_ratio", whole / plain, "1", 1.0)
        for quantile, seconds in _freshness(session, settings, Path(folder) / "live").items():
            _print(f"event_to_gold_{quantile}", seconds, "s", None)
    session.stop()


def _fill(lake: Lake, events: int) -> int:
    """Lives of messages (arrival, receipt, completion) at RATE events a second, in FILES files; the rows written."""
    rng = np.random.default_rng(1)
    messages = events // 3
    enqueued = 1_760_000_000 + np.arange(messages) / (RATE / 3)
    received = enqueued + rng.lognormal(-2, 1.2, messages)
    processing = rng.lognormal(-3, 0.8, messages)
    at = np.concatenate([enqueued, received, received + processing])
    kinds = np.repeat(["enqueued", "received", "completed"], messages)
    order = np.argsort(at, kind="stable")
    message = np.tile(np.arange(messages), 3)[order]
    tenant = (rng.zipf(1.3, messages) % TENANTS)[message]
    rows = _events(
        kinds[order], message, tenant, _instants(enqueued[message]), _instants(at[order]), processing[message]
    )
    for number in range(FILES):
        share = -(-rows.num_rows // FILES)
        lake.append("message_events", rows.slice(number * share, share))
    return int(rows.num_rows)


def _events(kinds: object, message: object, tenant: object, enqueued: object, at: object, took: object) -> pa.Table:
    kind, number, owner = np.asarray(kinds), np.asarray(message), np.asarray(tenant)
    rows = len(kind)
    ids = np.char.add(np.char.add(kind, "-"), number.astype(str))
    return pa.table(
        {
            "event_id": ids,
            "event_type": kind,
            "broker": ["bench"] * rows,
            "queue": np.char.add("queue-", (owner % QUEUES).astype(str)),
            "tenant": np.char.add("tenant-", owner.astype(str)),
            "message_id": np.char.add("message-", number.astype(str)),
            "attempt": pa.array(np.ones(rows, np.int32), mask=kind == "enqueued"),
            "enqueued_at": enqueued,
            "occurred_at": at,
            "processing_seconds": pa.array(np.asarray(took), mask=kind != "completed"),
            "clock": ["broker"] * rows,
            "source": ["bench"] * rows,
            "ingested_at": at,
            "ingest_date": [datetime(2025, 10, 9, tzinfo=UTC).date()] * rows,
        }
    )


def _instants(seconds: object) -> pa.Array:
    return pa.array((np.asarray(seconds) * 1e6).astype(np.int64)).cast(pa.timestamp("us")).cast(TIMESTAMP)


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


def _freshness(session: SparkSession, settings: AnalyzeSettings, root: Path) -> dict[str, float]:
    """Seconds from an event's time to the gold commit that shows it, once warm."""
    lake = Lake(root)
    lake.create()
    job = Job(session, settings, root, once=False, on_batch=lambda rows: None)
    job.start()
    fed: list[tuple[int, float]] = []
    seen: list[tuple[int, float]] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(Lake(root), seen, done))
    watcher.start()
    started = time.time()
    while time.time() - started < FEED_SECONDS:
        now = time.time()
        at = _instants(np.full(FEED_EVENTS, now))
        number = np.arange(FEED_EVENTS) + len(fed) * FEED_EVENTS
        rows = _events(np.repeat("enqueued", FEED_EVENTS), number, number % 8, at, at, np.zeros(FEED_EVENTS))
        lake.append("message_events", rows)
        fed.append(((len(fed) + 1) * FEED_EVENTS, now))
        time.sleep(max(0.0, started + len(fed) * FEED_INTERVAL - time.time()))
    while (not seen or seen[-1][0] < fed[-1][0]) and job.running():
        time.sleep(0.05)
    done.set()
    watcher.join()
    job.stop()
    warm = fed[int(len(fed) * WARM_UP_SHARE) :]
    ages = sorted(next(at for rows, at in seen if rows >= number) - event for number, event in warm)
    return {"p50": statistics.median(ages), "p95": ages[int(len(ages) * 0.95)]}


def _watch(lake: Lake, seen: list[tuple[int, float]], done: threading.Event) -> None:
    version = -1
    while not done.wait(0.005):
        if lake.version("partials") != version:
            version, now = lake.version("partials"), time.time()
            seen.append((sum(lake.read("partials", columns=["enqueued"]).column("enqueued").to_pylist()), now))


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _print(figure: str, value: float, unit: str, baseline: float | None) -> None:
    print(json.dumps({"figure": figure, "value": round(value, 3), "unit": unit, "baseline": baseline}), flush=True)


if __name__ == "__main__":
    main()
