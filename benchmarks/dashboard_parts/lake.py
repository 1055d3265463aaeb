"""A lake of 100,000 (queue, tenant) keys whose newest second is now, and a process that goes on writing it.

``python -m benchmarks.dashboard_parts.lake LAKE`` commits a second of partials each second, finishes it, and merges
small files and makes history coarser meanwhile, as the analysis does; on its standard output it says when each number
of the queue ``probe`` was committed.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.analytics_parts.reader import Load, fill
from benchmarks.dashboard_parts.server import child_environment
from lake.store import Lake
from lake.tables import PARTIALS
from spark_analytics.settings import AnalyzeSettings

#: Seconds of history: until then, each of the keys has had a message.
SECONDS = 240
PROBE = "probe"


#: For so long a lake that is maintained tells its history by the second: what one has that has run for a while.
FULL_SECONDS = 60 * AnalyzeSettings().seconds_kept_minutes


@cache
def lake_of(scale: float, whole: int = SECONDS) -> Path:
    """The folder of the lake, filled once for all parts that want ``whole`` seconds of history; ``scale`` shortens
    it."""
    from spark_analytics.state.writer import Writer

    folder = Path(tempfile.mkdtemp(prefix="sojourn-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    seconds = max(60, int(whole * scale))
    lake = Lake(folder)
    lake.create()
    fill(lake, Load(), seconds, begin=int(time.time()) - seconds)
    writer = Writer(folder)
    writer.step()
    writer.close()
    return folder


@contextmanager
def written(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Somebody writes the lake meanwhile; the process whose output says when which number was committed."""
    command = [sys.executable, "-m", "benchmarks.dashboard_parts.lake", str(folder)]
    process = subprocess.Popen(command, env=child_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # its first commit
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _write(folder: Path) -> None:
    from spark_analytics.maintenance.runner import MaintenanceRunner
    from spark_analytics.state.writer import Writer

    lake, load, writer = Lake(folder), Load(), Writer(folder)
    number, due = _held(lake), time.time()
    settings = AnalyzeSettings()
    maintenance = MaintenanceRunner(folder, settings.maintain_every, settings.retention())
    while True:
        number += 1
        second = int(time.time())
        rows = pa.concat_tables([load.partials(second), _probe(load, second, number)])
        lake.append("partials", rows)
        writer.step()
        print(number, time.time(), flush=True)
        maintenance.count_batch()
        due = max(due + 1.0, time.time())
        time.sleep(max(0.0, due - time.time()))


def _held(lake: Lake) -> int:
    """What the queue ``probe`` holds already, of who wrote before."""
    rows = lake.ensure("partials").to_pyarrow_dataset().to_table(["enqueued"], filter=pc.field("queue") == PROBE)
    return pc.sum(rows["enqueued"]).as_py() or 0


def _probe(load: Load, second: int, number: int) -> pa.Table:
    """One tenant's partial of ``second``, so that the queue ``probe`` holds ``number`` messages from then on."""
    row = load.partials(second).slice(0, 1).to_pylist()[0]
    counted = {name: 0 for name, value in row.items() if isinstance(value, int) and name != "bucket_seconds"}
    none = {name: [] for name, value in row.items() if isinstance(value, list)}
    sums = {name: 0.0 for name, value in row.items() if isinstance(value, float)}
    told = {"queue": PROBE, "tenant": PROBE, "enqueued": 1, "backlog_cells": [{"second": second, "net": 1}]}
    return pa.Table.from_pylist([{**row, **counted, **none, **sums, **told}], schema=PARTIALS.schema)


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
