"""The clock by which leases end in the client."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

#: Seconds on a clock that nobody sets; where the system has one that goes on while the machine is suspended, on that.
running: Callable[[], float] = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    running = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
