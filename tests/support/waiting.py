"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Deadlines are written for an idle machine; a busy one of the slow kind takes several times as long. A test that
#: passes never waits for its deadline, so patience costs nothing but where something is wrong.
PATIENCE = 4.0


def wait_until(probe: Callable[[], T | None], what: str, *, seconds: float = 20.0, every: float = 0.05) -> T:
    """The first true answer of ``probe``; AssertionError naming ``what`` when none comes within ``seconds``,
    times the patience that a busy machine needs."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        if answer := probe():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
