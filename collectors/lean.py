"""A collecting process that stays small: what it need not load it does not, and what it freed it gives back."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from pathlib import Path

from lake.lean import give_back_memory, load_arrow_alone

#: From how many bytes on what is freed goes back to the system at once.
_GIVEN_BACK = 1 << 16
#: The same where requests are taken in: what one batch of spans had is not given back, to be asked for by the next.
#: That took the kernel 1.5 to 2.5 µs a span of some 18, and takes it 0.6 to 1.1; up to 50 MB are kept between batches.
_TAKING_IN, _KEPT = 4 << 20, 32 << 20
#: The allocator inside deltalake, jemalloc: one heap, and what is freed goes back within a second. At once would be
#: 17 MB less of 181 in a process that writes 10,000 samples a second, at 10 ms a commit. Source: jemalloc(3), TUNING.
_JEMALLOC = "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0"
#: How often the process looks at its size (seconds), and from which on it gives back what is free between what is held:
#: walking all heaps costs as much as some commits, and a process that stays small need not.
_LOOK_EVERY = 10.0
_LARGE_BYTES = 240 << 20


def spare_memory() -> None:
    """Make this process lean, for good: for one that only collects, called before its other imports.

    Arrow's own allocator and glibc's heaps for each thread hold freed memory back; the system's, with one
    heap, gives it back. Measured over 10,000 queues, with the writer's threads: 325 → 240 MB under a tap's full load.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", _JEMALLOC)
    _trim_now_and_then()
    # Records are many small objects that live for a moment, and none in circles. Python would search them for
    # circles at each 700: that took 7 % of a receiver's time.
    gc.set_threshold(100_000, 20, 50)
    load_arrow_alone()
    give_back_memory(_GIVEN_BACK)
    import pyarrow as pa

    pa.set_cpu_count(1)


def keep_some_memory() -> None:
    """Let this process keep some of what it freed, for good: for one that takes in requests, at their rate."""
    give_back_memory(_TAKING_IN, _KEPT)


def _trim_now_and_then() -> None:
    """Where the C library is glibc: other systems manage by themselves."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return

    def trim() -> None:
        while True:
            time.sleep(_LOOK_EVERY)
            if _resident_bytes() > _LARGE_BYTES:
                library.malloc_trim(0)  # the holes between what is held, too; without the GIL

    threading.Thread(target=trim, name="malloc-trim", daemon=True).start()


def _resident_bytes() -> int:
    """What the process holds; 0 where the system does not tell it so (proc_pid_statm(5))."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
