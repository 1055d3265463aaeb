"""The dashboard's own process over a lake, as `sojourn dashboard` starts it; and an empty Streamlit page beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processor import descendants, memory_mb, processor_seconds
from dashboard.run import HEALTH_PATH, address, claim_port, command, environment
from dashboard.settings import DashboardSettings

PATIENCE_SECONDS = 120.0
_EMPTY = 'import streamlit as st\n\nst.html("<h1>Nothing</h1>")\n'


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers at ``url``."""

    url: str
    process: subprocess.Popen[bytes]

    def processor(self) -> float:
        """Processor seconds so far, of it and all that it has started."""
        return sum(map(processor_seconds, descendants(self.process.pid)))

    def memory(self) -> float:
        """Resident megabytes of the same."""
        return sum(memory_mb(pid) for pid in descendants(self.process.pid))


@contextmanager
def serving(lake: Path, **told: float) -> Iterator[Server]:
    """The dashboard over ``lake``, which nobody has asked yet; ``told``: settings of its own."""
    settings = claim_port(DashboardSettings.model_validate({"port": 0, "stale_after_seconds": 600, **told}))
    with _running(command(settings), environment(settings, lake), address(settings)) as server:
        yield server


@contextmanager
def empty() -> Iterator[Server]:
    """A Streamlit page with a heading and nothing else."""
    port = claim_port(DashboardSettings(port=0)).port
    with tempfile.TemporaryDirectory(prefix="sojourn-bench-") as folder:
        page = Path(folder) / "empty.py"
        page.write_text(_EMPTY, encoding="utf-8")
        told = ["--server.address=127.0.0.1", f"--server.port={port}", "--server.headless=true"]
        told += ["--server.fileWatcherType=none", "--browser.gatherUsageStats=false"]
        command = [sys.executable, "-m", "streamlit", "run", str(page), *told]
        with _running(command, child_environment(), f"http://127.0.0.1:{port}") as server:
            yield server


def child_environment() -> dict[str, str]:
    """That of processes of the benchmark's own."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@contextmanager
def _running(command: Sequence[str], environ: Mapping[str, str], url: str) -> Iterator[Server]:
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server at {url} did not become healthy")
            time.sleep(0.05)
        yield Server(url, process)
    finally:
        process.terminate()
        process.wait(30)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + HEALTH_PATH, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
