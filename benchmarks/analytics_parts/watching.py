"""The analytics as users run them, beside a load, and what gold shows when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchmarks.analytics_parts.making import LIFE
from lake.log import log_entry
from lake.remote import Remote
from lake.snapshot import read_file
from lake.store import Lake
from spark_analytics.state.feed import FOLDED

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


class Follows(threading.Thread, ABC):
    """Follows the log of one table of the lake at ``root`` from its first commit on, until :meth:`stop`."""

    table = ""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._lake = Lake(root)
        self._folder = self._lake.path(self.table)
        self._over = threading.Event()

    def run(self) -> None:
        version = 0
        while not self._over.is_set():
            file = log_entry(self._folder, version)
            if not file.exists():
                time.sleep(LOOK_REMOTE_SECONDS if isinstance(file, Remote) else LOOK_SECONDS)
                continue
            at = time.time()
            self.note([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()], version, at)
            version += 1

    def stop(self) -> None:
        """End following."""
        self._over.set()
        self.join()

    @abstractmethod
    def note(self, actions: list[dict[str, Any]], version: int, at: float) -> None:
        """Take in a commit's actions, seen at the unix time ``at``."""


class Gold(Follows):
    """Notes when the partials held how many events, from commit to commit."""

    table = "partials"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: list[Instant] = []

    def note(self, actions: list[dict[str, Any]], version: int, at: float) -> None:
        added = [action["add"] for action in actions if "add" in action]
        tables = [read_file(self._folder / one["path"], LIFE) for one in added if one["dataChange"]]
        events = sum(pc.sum(table.column(name)).as_py() or 0 for table in tables for name in LIFE)
        assert version == len(self.seen)
        self.seen.append(((self.seen[-1][0] if self.seen else 0) + events, at))


class Finished(Follows):
    """Notes when finished state told of which version of the partials: each commit says how far it has come."""

    table = "queue_state"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._versions: list[tuple[int, float]] = []

    def note(self, actions: list[dict[str, Any]], version: int, at: float) -> None:
        for action in actions:
            if action.get("txn", {}).get("appId") == f"{FOLDED}:partials":
                self._versions.append((action["txn"]["version"], at))

    def seen(self, partials: list[Instant]) -> list[Instant]:
        """When it told of how many events, given what :class:`Gold` saw."""
        return [(partials[version][0], at) for version, at in self._versions]


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
