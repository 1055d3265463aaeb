"""The reader after each commit: the slowest `…_now` view over 100,000 tenants, beside one plain sum of the same rows.

A lake is filled with fifteen minutes of one-second partials, 10,000 events a second over 100,000 (queue, tenant) keys;
then second after second is committed, and every `_now` view asked for whole. The baseline is what any engine has to do:
``SELECT key, SUM(enqueued) GROUP BY key`` in DuckDB over the same partials, held in memory.

``python -m benchmarks.analytics_parts.reader`` prints the figures, with ``--views`` each view's own median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.figures import Figure, show
from benchmarks.processor import memory_mb
from lake.histogram import bucket_index
from lake.reader import Reader
from lake.store import Lake, conform
from lake.tables import BACKLOG_CELLS, HISTOGRAM, PARTIALS, TIMESTAMP

KEYS, QUEUES, EVENTS, SECONDS, COMMITS = 100_000, 50, 10_000, 900, 12
_PER_FILE = 30
_BEGIN = 1_760_000_000
NOW_VIEWS = ("tenant_backlog_now", "concurrency_now", "queue_health_now", "attempt_age_now")

Numbers = npt.NDArray[np.int64]


class Load:
    """Arrivals, receipts a second later and completions half a second after that, all keys alike or (``skewed``) few
    with most of them."""

    def __init__(self, keys: int = KEYS, events: int = EVENTS, *, skewed: bool = False) -> None:
        self._rng = np.random.default_rng(7)
        self._keys, self._each, self._skewed = keys, events // 3, skewed
        self._arrived: dict[int, Numbers] = {}
        self._tenants = pa.array([f"tenant-{number:06d}" for number in range(keys)])
        self._queues = pa.array([f"queue-{number:02d}" for number in range(QUEUES)])

    def _arrivals(self, second: int) -> Numbers:
        if second not in self._arrived:
            drawn = self._rng.random(self._each)
            keys = (drawn**6 if self._skewed else drawn) * self._keys
            self._arrived[second] = np.sort(keys.astype(np.int64))
            self._arrived.pop(second - 10, None)
        return self._arrived[second]

    def partials(self, second: int) -> pa.Table:
        """The partials of one second."""
        arrived, received, completed = (self._arrivals(second - delay) for delay in (0, 1, 2))
        keys, of = np.unique(np.concatenate((arrived, received, completed)), return_inverse=True)
        ends = np.cumsum([len(arrived), len(received), len(completed)])
        parts = np.split(of, ends[:-1])
        enqueued, got, done = (np.bincount(part, minlength=len(keys)) for part in parts)
        none = np.zeros(len(keys), np.int64)
        columns = {
            "broker": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(keys), np.int8)), pa.array(["bench"])),
            "queue": self._queues.take(pa.array(keys % QUEUES)),
            "subscriber": pa.array([""] * len(keys)),
            "tenant": self._tenants.take(pa.array(keys)),
            "bucket_start": _times(np.full(len(keys), second)),
            "bucket_seconds": pa.array(np.ones(len(keys), np.int32)),
            "newest_occurred_at": _times(np.full(len(keys), second)),
            **{name: pa.array(none) for name in ("failed", "dead_lettered", "expired", "sidelined", "delayed")},
            **{name: pa.array(none) for name in ("retries", "finished_unreceived", "retry_age_count")},
            "enqueued": pa.array(enqueued),
            "received": pa.array(got),
            "started": pa.array(got),
            "completed": pa.array(done),
            "processing_count": pa.array(done),
            "processing_sum": pa.array(done * 0.5),
            "processing_histogram": _histograms(done, 0.5),
            "first_attempt_age_count": pa.array(got),
            "first_attempt_age_sum": pa.array(got * 1.0),
            "first_attempt_age_max": pa.array(np.where(got > 0, 1.0, 0.0)),
            "first_attempt_age_skewed": pa.array(none),
            "first_attempt_age_histogram": _histograms(got, 1.0),
            "completion_age_count": pa.array(done),
            "completion_age_sum": pa.array(done * 2.0),
            "completion_age_max": pa.array(np.where(done > 0, 2.0, 0.0)),
            "completion_age_skewed": pa.array(none),
            "completion_age_histogram": _histograms(done, 2.0),
            "backlog_cells": _cells(enqueued, done, second),
        }
        return conform(pa.table(columns), PARTIALS.schema)


def _times(seconds: Numbers) -> pa.Array:
    return pa.array(seconds * 1_000_000).cast(pa.timestamp("us")).cast(TIMESTAMP)


def _histograms(counts: Numbers, value: float) -> pa.Array:
    there = counts > 0
    offsets = np.concatenate(([0], np.cumsum(there))).astype(np.int32)
    index = pa.array(np.full(int(there.sum()), bucket_index(value), np.int32))
    cells = pa.StructArray.from_arrays([index, pa.array(counts[there])], fields=list(HISTOGRAM.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), cells).cast(HISTOGRAM)


def _cells(enqueued: Numbers, done: Numbers, second: int) -> pa.Array:
    seconds = np.stack((np.full(len(enqueued), second), np.full(len(done), second - 2)), axis=1)
    nets = np.stack((enqueued, -done), axis=1)
    there = nets != 0
    offsets = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
    cells = pa.StructArray.from_arrays(
        [pa.array(seconds[there]), pa.array(nets[there])], fields=list(BACKLOG_CELLS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), cells).cast(BACKLOG_CELLS)


def fill(lake: Lake, load: Load, seconds: int, begin: int = _BEGIN) -> int:
    """Append ``seconds`` of partials from ``begin`` on, many to a file; the first second that is still to come."""
    for start in range(begin, begin + seconds, _PER_FILE):
        batch = [load.partials(second) for second in range(start, min(start + _PER_FILE, begin + seconds))]
        lake.append("partials", pa.concat_tables(batch))
    return begin + seconds


def timed(lake: Lake, load: Load, second: int, reader: Reader) -> dict[str, list[float]]:
    """Seconds that each view took after each of COMMITS commits. Each is asked first after some of them."""
    taken: dict[str, list[float]] = {view: [] for view in NOW_VIEWS}
    for number in range(COMMITS * len(NOW_VIEWS)):
        view = NOW_VIEWS[number % len(NOW_VIEWS)]
        lake.append("partials", load.partials(second + number))
        begun = time.perf_counter()
        rows = reader.query(f"SELECT * FROM {view}")
        taken[view].append(time.perf_counter() - begun)
        assert rows.num_rows
    return taken


def plain(lake: Lake) -> float:
    """Seconds of the plain sum over all partials in memory."""
    columns = ["broker", "queue", "subscriber", "tenant", "enqueued"]
    rows = lake.read("partials", columns=columns)
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.register("rows", rows)
        connection.execute("CREATE TEMP TABLE held AS SELECT * FROM rows")
        sql = "SELECT broker, queue, subscriber, tenant, SUM(enqueued) FROM held GROUP BY ALL"
        return min(_seconds(connection, sql) for _ in range(3))


def _seconds(connection: duckdb.DuckDBPyConnection, sql: str) -> float:
    begun = time.perf_counter()
    connection.sql(sql).to_arrow_table()
    return time.perf_counter() - begun


def measure(scale: float, *, skewed: bool = False, views: bool = False) -> Iterator[Figure]:
    """The reader's figures; ``scale`` shortens the history."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake, load = Lake(folder), Load(skewed=skewed)
        second = fill(lake, load, max(90, int(SECONDS * scale)))
        # A process of its own, so that its memory is the reader's alone.
        command = [sys.executable, "-m", "benchmarks.analytics_parts.reader", "--in", folder, str(second)]
        done = subprocess.run(
            [*command, *(["--skewed"] if skewed else [])], check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        told = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
        medians = {view: told[view] for view in NOW_VIEWS}
        baseline = plain(lake) * 1000
    if views:
        for view, value in medians.items():
            yield Figure(f"reader_ms_{view}", value, "ms", baseline)
        yield Figure("reader_first_seconds", told["first"], "s")
    yield Figure("reader_ms_100k_keys", max(medians.values()), "ms", baseline)
    yield Figure("reader_rss_mb_100k_keys", told["rss_mb"], "MB")


def _follow(folder: str, second: int, *, skewed: bool) -> None:
    lake, load, reader = Lake(folder), Load(skewed=skewed), Reader(folder)
    begun = time.perf_counter()
    for view in NOW_VIEWS:
        reader.query(f"SELECT COUNT(*) FROM {view}")
    print("first", time.perf_counter() - begun)
    for view, taken in timed(lake, load, second, reader).items():
        print(view, 1000 * statistics.median(taken))
    print("rss_mb", memory_mb(os.getpid(), "VmHWM"))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--skewed", action="store_true")
    parser.add_argument("--views", action="store_true")
    parser.add_argument("--in", nargs=2, dest="inside", metavar=("LAKE", "SECOND"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        _follow(asked.inside[0], int(asked.inside[1]), skewed=asked.skewed)
        return
    for figure in measure(asked.scale, skewed=asked.skewed, views=asked.views):
        show(figure)


if __name__ == "__main__":
    main()
