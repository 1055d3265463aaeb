"""The job on a standalone Spark of one, two and three workers over an object store, and what of it does not scale.

Bronze is written beforehand, and `sojourn analyze --rebuild --once` reads all of it for each number of workers, every
batch by executors; then `sojourn analyze --rebuild-state` folds it side by side. How the time of a batch divides is
told by Spark's event log and by the store's notes of requests: while any task ran, while the driver alone waited for
the store, and the rest of the driver's, which plans and commits. The first batch, for which Java and Pythons start, is
left out of everything.

All of it – the store, master, workers, driver – shares this machine's cores: beside each figure by the clock stand
processor seconds, which more cores would not change.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.analytics_parts.making import LIFE, lives
from benchmarks.figures import Figure
from benchmarks.processor import descendants, processor_seconds, yardstick_seconds
from lake.store import Lake
from spark_analytics.run import rebuild_state
from tests.support.s3 import BUCKET, CREDENTIALS, S3Server
from tests.support.spark_cluster import SparkCluster

EVENTS, BATCHES, FILES_A_BATCH = 2_400_000, 6, 12
RATE, TENANTS, BEGINS = 10_000, 100_000, 1_760_000_000
WORKERS = (1, 2, 3)
#: How often processor time is looked at.
LOOK_SECONDS = 0.1
SETTINGS = """\
[lake]
root = "{home}"
path = "s3://{bucket}/cluster"
[lake.storage_options]
aws_endpoint_url = "{store}"

[analyze]
master = "{master}"
driver_memory = "512m"
driver_bytes = 0
max_bytes_per_trigger = {batch_bytes}
[analyze.spark]
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "-XX:+UseSerialGC"
"spark.eventLog.enabled" = "true"
"spark.eventLog.compress" = "false"
"spark.eventLog.rolling.enabled" = "false"
"spark.eventLog.dir" = "file://{events}"
"""

#: From and until, in unix seconds.
Interval = tuple[float, float]


class Batch(NamedTuple):
    """One micro-batch: its time, and how many rows of bronze are in it."""

    time: Interval
    rows: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to, without its first batch: seconds by the clock, and of processor by who took them."""

    workers: int
    events: int
    batches: int
    clock: float
    tasks: float  # of the clock while any task ran
    store: float  # while none did, and the store answered
    task_seconds: float  # of all tasks together
    processor: Mapping[str, float]
    fold_seconds: float  # of the clock, to fold all of it anew side by side
    survey_seconds: float  # of which the driver alone surveyed what there is


def measure(scale: float) -> Iterator[Figure]:
    """Events a second and processor seconds an event at one, two and three workers, and the shares of a batch."""
    os.environ |= CREDENTIALS  # each worker has its own
    yield Figure("yardstick_seconds", yardstick_seconds(), "s")
    yield Figure("load", os.getloadavg()[0], "1")
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as name:
        folder = Path(name)
        with S3Server(folder / "s3", noting=True) as server:
            lake = Lake(server.home(folder / "home", "cluster"))
            lake.create()
            batch_bytes = _fill(lake, int(EVENTS * scale))
            runs = [_run(folder, server, lake, workers, batch_bytes) for workers in WORKERS]
            for run in runs:
                yield from _told(run, runs[0])
            started, used = time.perf_counter(), time.process_time()
            rows = rebuild_state(lake.root)
            took, used = time.perf_counter() - started, time.process_time() - used
    yield from _law(runs[0])
    written = EVENTS * scale
    yield Figure("fold_one_process_seconds", took, "s")
    yield Figure("fold_one_process_processor_us_an_event", 1e6 * used / written, "us")
    yield Figure("fold_rows_an_event", rows / written, "1")
    yield Figure("load_afterwards", os.getloadavg()[0], "1")


def _fill(lake: Lake, count: int) -> int:
    """Write bronze; the bytes that make a batch."""
    files = BATCHES * FILES_A_BATCH
    share = count // files // len(LIFE)
    for number in range(files):
        begins = BEGINS + number * share * len(LIFE) / RATE
        lake.append("message_events", lives(share, begins=begins, rate=RATE, tenants=TENANTS, seed=number))
    sizes = pa.table(lake.ensure("message_events").get_add_actions(flatten=True)).column("size_bytes").to_pylist()
    return int(sum(sizes)) // BATCHES


def _run(folder: Path, server: S3Server, lake: Lake, workers: int, batch_bytes: int) -> Run:
    place = folder / f"cluster-{workers}"
    events = place / "events"
    events.mkdir(parents=True)
    with SparkCluster(place, workers=workers) as cluster:
        settings = place / "sojourn.toml"
        settings.write_text(
            SETTINGS.format(
                home=lake.root,
                bucket=BUCKET,
                store=server.url,
                master=cluster.master,
                batch_bytes=batch_bytes,
                events=events,
            ),
            encoding="utf-8",
        )
        watch = _analysed(cluster, server, settings, "--rebuild", "--once")
        (log_file,) = events.iterdir()
        # Spark counts a row as often as a batch is read.
        done = re.findall(
            r"flow=events batch=(\d+) by=executors rows=(\d+)", _log(settings).read_text(errors="replace")
        )
        with log_file.open(encoding="utf-8") as lines:
            batches, tasks = _of_event_log(map(json.loads, lines), {int(batch): int(rows) for batch, rows in done})
        if len(batches) < 2:
            raise RuntimeError(f"{len(batches)} batches: the first is left out, so there have to be more")
        asked = [(one.at - one.seconds, one.at) for one in server.requests()]
        _analysed(cluster, server, settings, "--rebuild-state")
        told = re.search(r"folded side by side: seconds=(\S+) survey=(\S+)", _log(settings).read_text(errors="replace"))
        if told is None:
            raise RuntimeError("nothing was folded side by side")
    return _summed(workers, batches[1:], tasks, asked, watch, float(told[1]), float(told[2]))


def _log(settings: Path) -> Path:
    return settings.with_name("driver.log")


def _analysed(cluster: SparkCluster, server: S3Server, settings: Path, *words: str) -> _Watch:
    """`sojourn analyze`, to its end, and who took how much processor meanwhile."""
    command = [sys.executable, "-m", "sojourn.cli.main", "analyze", *words, "-c", str(settings)]
    with _log(settings).open("wb") as log:
        driver = subprocess.Popen(command, env=cluster.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        watch = _Watch({"driver": [driver.pid], "executors": cluster.worker_ids, "store": [server.process_id]})
        watch.start()
        try:
            if driver.wait(timeout=600):
                raise RuntimeError(_log(settings).read_text(errors="replace"))
        finally:
            watch.stop()
            if driver.poll() is None:
                driver.kill()
                driver.wait()
    return watch


def _of_event_log(lines: Iterable[Mapping[str, Any]], rows: dict[int, int]) -> tuple[list[Batch], list[Interval]]:
    """The batches that had ``rows``, in their order, and the tasks."""
    batches: list[Batch] = []
    tasks: list[Interval] = []
    for event in lines:
        if event["Event"] == "SparkListenerTaskEnd":
            about = event["Task Info"]
            tasks.append((about["Launch Time"] / 1e3, about["Finish Time"] / 1e3))
        elif event["Event"].endswith("QueryProgressEvent"):
            told = event["progress"]
            begun = datetime.fromisoformat(told["timestamp"].replace("Z", "+00:00")).timestamp()
            if told["batchId"] in rows:
                ended = begun + told["durationMs"]["triggerExecution"] / 1e3
                batches.append(Batch((begun, ended), rows.pop(told["batchId"])))
    return batches, tasks


def _summed(
    workers: int,
    batches: Sequence[Batch],
    tasks: Sequence[Interval],
    asked: Sequence[Interval],
    watch: _Watch,
    fold_seconds: float,
    survey_seconds: float,
) -> Run:
    times = [one.time for one in batches]
    busy, stored = _both(_union(tasks), times), _both(_union(asked), times)
    alone = _length(stored) - _length(_both(stored, busy))
    inside = [(begun, ended) for begun, ended in tasks if times[0][0] <= begun <= times[-1][1]]
    return Run(
        workers=workers,
        events=sum(one.rows for one in batches),
        batches=len(batches),
        clock=_length(times),
        tasks=_length(busy),
        store=alone,
        task_seconds=_length(inside),
        processor=watch.between(times[0][0], times[-1][1]),
        fold_seconds=fold_seconds,
        survey_seconds=survey_seconds,
    )


def _told(run: Run, one: Run) -> Iterator[Figure]:
    name, driver = f"cluster_{run.workers}", run.clock - run.tasks - run.store
    yield Figure(f"{name}_events_per_second", run.events / run.clock, "events/s", one.events / one.clock)
    for who, seconds in run.processor.items():
        yield Figure(f"{name}_processor_us_an_event_{who}", 1e6 * seconds / run.events, "us")
    yield Figure(f"{name}_batch_seconds", run.clock / run.batches, "s")
    yield Figure(f"{name}_batch_seconds_tasks_run", run.tasks / run.batches, "s")
    yield Figure(f"{name}_batch_seconds_store_alone", run.store / run.batches, "s")
    yield Figure(f"{name}_batch_seconds_driver_alone", driver / run.batches, "s")
    yield Figure(f"{name}_fold_seconds", run.fold_seconds, "s")
    yield Figure(f"{name}_fold_seconds_survey", run.survey_seconds, "s")
    yield Figure(f"{name}_tasks_at_once", run.task_seconds / run.tasks, "1", float(run.workers))


def _law(one: Run) -> Iterator[Figure]:
    """What Amdahl's law leaves, of what one worker took: its tasks divide, the rest does not."""
    serial = one.clock - one.tasks
    yield Figure("cluster_serial_share", serial / one.clock, "1")
    for workers in (2, 3, 10):
        yield Figure(f"cluster_law_speedup_{workers}_workers", one.clock / (serial + one.tasks / workers), "1")
    yield Figure("cluster_law_speedup_most", one.clock / serial, "1")
    yield Figure("cluster_events_in_a_batch", one.events / one.batches, "1")


class _Watch(threading.Thread):
    """Notes the processor seconds of groups of processes, and of all that they start, as time goes by."""

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        super().__init__(daemon=True)
        self._groups = groups
        self._over = threading.Event()
        self._used: dict[int, float] = {}  # by process, also of those that have ended
        self._of: dict[int, str] = {}
        self._seen: list[tuple[float, dict[str, float]]] = []

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for name, processes in self._groups.items():
                for pid in [each for process in processes for each in descendants(process)]:
                    self._of[pid] = name
                    self._used[pid] = max(self._used.get(pid, 0.0), processor_seconds(pid, ended_children=False))
            sums = dict.fromkeys(self._groups, 0.0)
            for pid, seconds in self._used.items():
                sums[self._of[pid]] += seconds
            self._seen.append((time.time(), sums))

    def stop(self) -> None:
        """End watching."""
        self._over.set()
        self.join()

    def between(self, begins: float, ends: float) -> dict[str, float]:
        """Processor seconds by group from ``begins`` until ``ends``, to one look."""
        first = next(sums for at, sums in self._seen if at >= begins)
        last = next((sums for at, sums in self._seen if at >= ends), self._seen[-1][1])
        return {name: last[name] - first[name] for name in last}


# -- intervals ----------------------------------------------------------------------------------------------------


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time in any of ``intervals``, as intervals apart from each other and in their order."""
    merged: list[Interval] = []
    for begun, ended in sorted(intervals):
        if merged and begun <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(ended, merged[-1][1])
        else:
            merged.append((begun, ended))
    return merged


def _both(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """The time in both; each of them is apart and in order."""
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in other if a < d and c < b]
    return sorted(found)


def _length(intervals: Iterable[Interval]) -> float:
    return sum(ended - begun for begun, ended in intervals)
