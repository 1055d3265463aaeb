"""A clock that all processes of this machine share and nobody sets: seconds since it was started, sleep included."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def seconds() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@cache
def identity() -> str:
    """Which start of the machine this is: instants of another mean nothing now."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
