"""The analytics as users run them, beside a load, and what gold shows when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc

from benchmarks.analytics_parts.making import LIFE
from lake.remote import Location, Remote
from lake.snapshot import read_file
from lake.store import Lake

REPOSITORY = Path(__file__).resolve().parents[2]
#: (number of events, unix time)
Instant = tuple[int, float]
#: How often gold's log is looked at (seconds): in a store each look is a request, which disturbs.
LOOK_SECONDS, LOOK_REMOTE_SECONDS = 0.002, 0.03


@contextmanager
def analysis(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``sojourn analyze`` on the lake at ``root``, ended at the end."""
    process = _analyze(root)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def analysed_once(root: Path, look: Callable[[int], None] = lambda process: None) -> None:
    """``sojourn analyze --once`` on the lake at ``root``, to its end; ``look`` is given its process id meanwhile."""
    process = _analyze(root, "--once")
    while process.poll() is None:
        look(process.pid)
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"sojourn analyze ended with {process.returncode}")


def _analyze(root: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sojourn.cli.main", "analyze", "--lake", str(root), *words]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fed(root: Path, rate: int, tenants: int, seconds: float) -> subprocess.Popen[str]:
    """The load of :mod:`benchmarks.analytics_parts.feed`, begun."""
    arguments = [str(root), str(rate), str(tenants), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.analytics_parts.feed", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


class Gold(threading.Thread):
    """Follows gold from commit to commit, and notes when it held how many events."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._lake = Lake(root)
        self._log = self._lake.path("partials") / "_delta_log"
        self._over = threading.Event()
        self.seen: list[Instant] = []

    def run(self) -> None:
        version, total = 0, 0
        while not self._over.is_set():
            file = self._log / f"{version:020}.json"
            if not file.exists():
                time.sleep(LOOK_REMOTE_SECONDS if isinstance(file, Remote) else LOOK_SECONDS)
                continue
            at = time.time()
            total += self._events_in(file)
            self.seen.append((total, at))
            version += 1

    def stop(self) -> None:
        """End following."""
        self._over.set()
        self.join()

    def _events_in(self, commit: Location) -> int:
        added = [json.loads(line).get("add") for line in commit.read_text(encoding="utf-8").splitlines()]
        paths = [self._lake.path("partials") / one["path"] for one in added if one and one["dataChange"]]
        tables = [read_file(path, LIFE) for path in paths]
        return sum(pc.sum(table.column(name)).as_py() or 0 for table in tables for name in LIFE)


def rss_mb(process: int) -> float:
    """Resident memory of a process and all that it started, shared pages counted once for each."""
    pages = os.sysconf("SC_PAGE_SIZE")
    total, pending = 0.0, [process]
    while pending:
        pid = pending.pop()
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * pages / 1e6
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it ended meanwhile
    return total
