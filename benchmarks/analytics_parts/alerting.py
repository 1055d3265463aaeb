"""``sojourn alert`` with all shipped rules over 100,000 keys that change: its memory, and what a second costs it.

Seconds of partials come one by one at their own time, each is finished at once, and the process is the one that is
deployed. Its process for SQL is told apart.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.analytics_parts.reader import Load, fill
from benchmarks.figures import Figure
from benchmarks.processor import descendants, memory_mb, processor_seconds
from lake.store import Lake
from sojourn.supervise.probes import free_port
from spark_analytics.state.writer import Writer

#: Seconds of history before it starts, and for which it is watched; the first half of those is its start.
HISTORY, WATCHED = 30, 90


def measure(scale: float) -> Iterator[Figure]:
    """Megabytes of both processes (the median of the second half, and the most), seconds of processor a second."""
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        lake, load = Lake(folder), Load()
        lake.create()
        second = fill(lake, load, HISTORY, int(time.time()) - HISTORY)
        writer = Writer(Path(folder))
        writer.step()
        settings = Path(folder) / "sojourn.toml"
        settings.write_text(f'[lake]\nroot = "{folder}"\n\n[alert]\nport = {free_port()}\n')
        process = _started(settings)
        try:
            held: list[float] = []
            began, spent = time.monotonic(), 0.0
            seconds = max(20.0, WATCHED * scale)
            while (passed := time.monotonic() - began) < seconds:
                if process.poll() is not None:
                    raise RuntimeError(f"`sojourn alert` ended by {process.returncode}")
                lake.append("partials", load.partials(second))
                second = max(second + 1, int(time.time()))
                writer.step(patient=True)
                if passed >= seconds / 2:
                    held.append(memory_mb(process.pid))
                    spent = spent or _spent(process.pid)
                time.sleep(0.5)
            spent = _spent(process.pid) - spent
            beside = sum(memory_mb(one) for one in descendants(process.pid) if one != process.pid)
            yield Figure("alert_rss_mb_100k_keys", statistics.median(held), "MB")
            yield Figure("alert_rss_most_mb_100k_keys", memory_mb(process.pid, "VmHWM"), "MB")
            yield Figure("alert_worker_rss_mb_100k_keys", beside, "MB")
            yield Figure("alert_cores_100k_keys", spent / (seconds / 2), "cores")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _started(settings: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sojourn.cli.main", "alert", "--config", str(settings)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _spent(pid: int) -> float:
    return sum(processor_seconds(one, ended_children=False) for one in descendants(pid))
