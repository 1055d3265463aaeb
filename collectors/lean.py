"""A collecting process that stays small: what it need not load it does not, and what it freed it gives back."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

#: glibc's mallopt parameters: heaps for threads (each keeps what it freed), and from how many bytes on memory is taken
#: from and given back to the system by itself. Source: mallopt(3).
_MALLOPT = {"ARENA_MAX": (-8, 1), "MMAP_THRESHOLD": (-3, 1 << 16), "TRIM_THRESHOLD": (-1, 1 << 16)}
#: The threads of libraries that are made at import or first use: a collecting process waits, it does not compute.
_THREADS = ("TOKIO_WORKER_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
#: The allocator inside deltalake, jemalloc: one heap, and what is freed goes back at once. That is 17 MB less of 181 in
#: a process that writes 10,000 samples a second; a commit takes 10 ms more. Source: jemalloc(3), TUNING.
_JEMALLOC = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0"
_TRIM_EVERY = 5.0


class _Refuse(MetaPathFinder):
    """Finds that one module is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is kept out of this process", name=fullname)
        return None


def spare_memory() -> None:
    """Make this process lean, for good: for one that only collects, called before its other imports.

    pyarrow looks for pandas at its first array, and keeps what it found: 60 MB where some other part of Sojourn had it
    installed. Arrow's own allocator and glibc's heaps for each thread hold freed memory back; the system's, with one
    heap, gives it back. Measured over 10,000 queues, with the writer's threads: 325 → 240 MB under a tap's full load.
    """
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("_RJEM_MALLOC_CONF", _JEMALLOC)
    _return_freed_memory()
    # Records are many small objects that live for a moment, and none in circles. Python would search them for
    # circles at each 700: that took 7 % of a receiver's time.
    gc.set_threshold(100_000, 20, 50)
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    if "pandas" not in sys.modules:
        refuse = _Refuse("pandas")
        sys.meta_path.insert(0, refuse)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(refuse)


def _return_freed_memory() -> None:
    """Where the C library is glibc: other systems manage by themselves."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return
    for parameter, value in _MALLOPT.values():
        library.mallopt(parameter, value)

    def trim() -> None:
        while True:
            time.sleep(_TRIM_EVERY)
            library.malloc_trim(0)  # the holes between what is held, too; a few milliseconds, without the GIL

    threading.Thread(target=trim, name="malloc-trim", daemon=True).start()
