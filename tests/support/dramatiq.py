"""Dramatiq by wheel: the unmodified library in examples/dramatiq, ended by its process id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs import python_packages

EXAMPLE = Path(__file__).parents[2] / "examples" / "dramatiq"


def send(url: str, *messages: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Send ``messages`` by Dramatiq itself: before and after which second each was sent."""
    return _app(url, "send", given="".join(json.dumps(message) + "\n" for message in messages))


def redrive(url: str, queue: str) -> list[dict[str, Any]]:
    """Send the dead letters of ``queue`` back, as the example does."""
    return _app(url, "redrive", queue)


def _app(url: str, *arguments: str, given: str = "") -> list[dict[str, Any]]:
    command = [sys.executable, str(EXAMPLE / "app.py"), *arguments]
    ended = subprocess.run(command, input=given, env=_environment(url), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@contextmanager
def worker(url: str, *queues: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of two threads; killed at the end: what it holds stays unacknowledged."""
    command = [sys.executable, str(EXAMPLE / "app.py"), "work", *queues]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=_environment(url), **quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _environment(url: str) -> dict[str, str]:
    return {**os.environ, "QUEUE_URL": url, "PYTHONPATH": str(python_packages(EXAMPLE))}
