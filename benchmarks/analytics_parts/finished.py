"""A reader of finished state over 100,000 keys: what a new process's first question costs, and what each one after it.

Seconds of partials, as :mod:`benchmarks.analytics_parts.reader` makes them, are committed one by one and finished after
each commit, as the analysis does it. Every reader is a process of its own. The baseline of the cold figure is the same
over half the history: whoever reads finished state reads none of it.

``python -m benchmarks.analytics_parts.finished`` prints the figures.
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

from benchmarks.analytics_parts.reader import NOW_VIEWS, Load, fill
from benchmarks.figures import Figure, show
from benchmarks.processor import memory_mb
from lake.lean import give_back_memory, load_arrow_alone

load_arrow_alone(reads=True)  # as the alert process does

from lake.reader import Reader  # noqa: E402 - after it, as in every process of ours that reads
from lake.store import Lake  # noqa: E402

#: Seconds of history before anything is measured, and commits that a warm reader follows.
SECONDS, COMMITS, COLD = 900, 12, 5
#: So many of the last seconds are finished one by one; those before, all at once.
STEPS = 150


def measure(scale: float) -> Iterator[Figure]:
    """Milliseconds and megabytes; ``scale`` shortens the history."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        seconds, steps = max(60, int(SECONDS * scale)), max(20, int(STEPS * scale))
        first = _Lived(folder, seconds // 2 - steps)
        first.go_on(steps)
        half = _cold(folder)
        first.go_on(seconds - seconds // 2)
        whole = _cold(folder)
        yield Figure("reader_cold_ms_100k_keys", whole["wall"], "ms", half["wall"])
        yield Figure("reader_cold_processor_ms_100k_keys", whole["processor"], "ms of processor", half["processor"])
        warm = first.followed(folder)
        for view in NOW_VIEWS:
            yield Figure(f"reader_ms_{view}", warm[view], "ms")
        yield Figure("reader_ms_100k_keys", max(warm[view] for view in NOW_VIEWS), "ms")
        yield Figure("reader_rss_mb_100k_keys", warm["rss"], "MB", whole["rss"])


class _Lived:
    """A lake that somebody finishes."""

    def __init__(self, folder: str, seconds: int) -> None:
        from spark_analytics.state.writer import Writer  # not in the processes that read

        self._lake, self._load = Lake(folder), Load()
        self._second = fill(self._lake, self._load, seconds)
        self._writer = Writer(Path(folder))
        self._writer.step()

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self._lake.append("partials", self._load.partials(self._second))
            self._second += 1
            self._writer.step()

    def followed(self, folder: str) -> dict[str, float]:
        """What a reader says that is asked each view after each of some commits."""
        with _process(folder, "--follow") as reader:
            assert reader.stdin is not None and reader.stdout is not None
            reader.stdout.readline()
            for _ in range(COMMITS * len(NOW_VIEWS)):
                self.go_on(1)
                reader.stdin.write("go\n")
                reader.stdin.flush()
                reader.stdout.readline()
            reader.stdin.close()
            return _told(reader.stdout.read())


def _cold(folder: str) -> dict[str, float]:
    """Medians over processes of their own."""
    every = []
    for _ in range(COLD):
        with _process(folder, "--cold") as reader:
            assert reader.stdout is not None
            every.append(_told(reader.stdout.read()))
    return {name: statistics.median(told[name] for told in every) for name in every[0]}


def _process(folder: str, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.analytics_parts.finished", how, folder]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _told(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}


def _ask(folder: str) -> None:
    """The first question of a process that has loaded its libraries."""
    give_back_memory()
    wall, processor = time.perf_counter(), time.process_time()
    rows = Reader(folder).query("SELECT * FROM tenant_backlog_now")
    print("wall", 1000 * (time.perf_counter() - wall))
    print("processor", 1000 * (time.process_time() - processor))
    print("rss", memory_mb(os.getpid(), "VmHWM"))
    assert rows.num_rows


def _follow(folder: str) -> None:
    give_back_memory()
    reader = Reader(folder)
    taken: dict[str, list[float]] = {view: [] for view in NOW_VIEWS}
    for view in NOW_VIEWS:
        reader.query(f"SELECT COUNT(*) FROM {view}")
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        view = NOW_VIEWS[number % len(NOW_VIEWS)]
        begun = time.perf_counter()
        reader.query(f"SELECT * FROM {view}")
        taken[view].append(time.perf_counter() - begun)
        print("done", flush=True)
    for view, seconds in taken.items():
        print(view, 1000 * statistics.median(seconds))
    print("rss", memory_mb(os.getpid(), "VmHWM"))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    for how in ("--cold", "--follow"):
        parser.add_argument(how, metavar="LAKE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cold:
        _ask(asked.cold)
    elif asked.follow:
        _follow(asked.follow)
    else:
        for figure in measure(asked.scale):
            show(figure)


if __name__ == "__main__":
    main()
