"""Dramatiq by wheel: the unmodified library in examples/dramatiq, ended by its process id."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.applications import answers, at_work
from tests.support.programs import python_packages

EXAMPLE = Path(__file__).parents[2] / "examples" / "dramatiq"


def send(url: str, *messages: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Send ``messages`` by Dramatiq itself: before and after which second each was sent."""
    return answers(_app("send"), _environment(url), given=messages)


def redrive(url: str, queue: str) -> list[dict[str, Any]]:
    """Send the dead letters of ``queue`` back, as the example does."""
    return answers(_app("redrive", queue), _environment(url))


def worker(url: str, *queues: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker of two threads; killed at the end: what it holds stays unacknowledged."""
    return at_work(_app("work", *queues), _environment(url))


def _app(*arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLE / "app.py"), *arguments]


def _environment(url: str) -> dict[str, str]:
    return {"QUEUE_URL": url, "PYTHONPATH": str(python_packages(EXAMPLE))}
