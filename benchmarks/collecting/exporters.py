"""Another exporter of Prometheus' beside ours: started, scraped, and what it told counted."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence

from tests.support.waiting import wait_until

SCRAPES = 3


def scraped(
    command: Sequence[str], environment: Mapping[str, str], port: int, counts: Callable[[str], bool]
) -> tuple[float, float]:
    """The median seconds of a scrape of the exporter that ``command`` starts at ``port``, with more ``environment``;
    and the sum of the lines that ``counts`` takes."""
    seconds, told = answered(command, environment, port, "/metrics")
    return seconds, sum(float(line.rsplit(" ", 1)[1]) for line in told.splitlines() if counts(line))


def answered(command: Sequence[str], environment: Mapping[str, str], port: int, path: str) -> tuple[float, str]:
    """The median seconds of an answer to ``path`` of what ``command`` starts at ``port``; and the last answer."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: _page(port, path) is not None, "it to answer", seconds=60)
        seconds, told = [], ""
        for _ in range(SCRAPES):
            began = time.perf_counter()
            told = _page(port, path) or ""
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds), told
    finally:
        process.terminate()
        process.wait()


def _page(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return None
