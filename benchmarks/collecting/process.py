"""The collecting process as users run it, what it writes, and the memory that it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lake.store import Lake

ROOT = Path(__file__).parents[2]


@contextmanager
def collecting(config: Path, lake: Path) -> Iterator[int]:
    """``sojourn collect`` as a process of its own, ended in order; its process id."""
    command = [sys.executable, "-m", "sojourn.cli.main", "collect", "--config", str(config), "--lake", str(lake)]
    environment = {**os.environ, "SOJOURN_LOG": "WARNING"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def samples_in(lake: Path) -> int:
    """The rows of ``queue_samples``; 0 before there is such a table."""
    there = (lake / "bronze" / "queue_samples" / "_delta_log").exists()
    return int(Lake(lake).read("queue_samples").num_rows) if there else 0
