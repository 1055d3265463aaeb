"""``sojourn sql`` from the shell's Enter to the printed rows, beside a bare pyspark script that selects 1.

Warm caches: the archive of Java's classes is made before. The lake is as large as one of ninety seconds of the demo
(eight tenants, 80 messages a second), or the one that ``--lake`` names. Both are also told in processor seconds, which
other programs on the machine disturb less.

``python -m benchmarks.analytics_parts.sql_start [--lake DIR] [--engine spark]`` prints the figures.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.analytics_parts.reader import Load, fill
from benchmarks.figures import Figure, show
from lake.store import Lake
from spark_analytics.runtime.archive import SWITCH
from spark_analytics.runtime.training import ensure_archive
from spark_analytics.state.writer import Writer

RUNS = 5
QUERY = "SELECT * FROM queue_health_now"
TENANTS, EVENTS, SECONDS = 8, 240, 90
_BARE = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print(session.sql("SELECT 1").collect())
"""


def measure(scale: float, *, lake: Path | None = None, engine: str = "auto") -> Iterator[Figure]:
    """Medians of RUNS runs, ours and the bare script in turn; ``scale`` is nothing to them."""
    ensure_archive()
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        root = lake or _made(Path(folder) / "lake")
        command = [sys.executable, "-m", "sojourn.cli.main", "sql", QUERY, "--engine", engine, "--lake", str(root)]
        ours: list[tuple[float, float]] = []
        bare: list[tuple[float, float]] = []
        for _ in range(RUNS):
            ours.append(_run(command, folder))
            bare.append(_run([sys.executable, "-c", _BARE], folder))
        apart = _run([*command], folder, {SWITCH: "off"})
    median = [statistics.median(one) for one in zip(*ours, strict=True)]
    beside = [statistics.median(one) for one in zip(*bare, strict=True)]
    yield Figure("sql_start_seconds", median[0], "s", beside[0])
    yield Figure("sql_start_cpu_seconds", median[1], "s", beside[1])
    yield Figure("sql_start_without_archive_cpu_seconds", apart[1], "s", beside[1])


def _made(root: Path) -> Path:
    lake = Lake(root)
    lake.create()
    fill(lake, Load(TENANTS, EVENTS), SECONDS)
    writer = Writer(root)
    writer.step()
    writer.close()
    return root


def _run(command: list[str], folder: str, more: dict[str, str] | None = None) -> tuple[float, float]:
    """Seconds until ``command`` has printed and ended, and the processor time of all its processes, Java included."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **(more or {})}
    # A process in between becomes the parent of what is left over, and waits for it.
    between = [sys.executable, "-m", "benchmarks.analytics_parts.sql_start", "--watch", *command]
    told = subprocess.run(
        between, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    seconds, processor = told.stderr.split()[-2:]
    return float(seconds), float(processor)


def _watch(command: list[str]) -> int:
    """Run ``command``; on stderr, last, its seconds and the processor seconds of all that descended from it."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    started = time.perf_counter()
    code = subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode
    seconds = time.perf_counter() - started
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{seconds} {used.ru_utime + used.ru_stime}", file=sys.stderr)
    return code


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["--watch"]:
        raise SystemExit(_watch(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path)
    parser.add_argument("--engine", default="auto")
    chosen = parser.parse_args()
    for figure in measure(1.0, lake=chosen.lake and chosen.lake.absolute(), engine=chosen.engine):
        show(figure)


if __name__ == "__main__":
    main()
