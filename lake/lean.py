"""What a process need not load, it does not: pandas, and a thread of some library's for each core; and it gives back
what it freed."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

#: Libraries that make a thread for each core at import or first use.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "TOKIO_WORKER_THREADS")
#: Where Arrow itself, unlike what Python asks of it, takes memory from: scans of files would leave what they freed to
#: an allocator of its own, 150 MB of it. To be in the environment before Arrow is loaded. Source:
#: https://arrow.apache.org/docs/cpp/env_vars.html
SYSTEM_POOL = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
#: glibc's mallopt parameters: heaps for threads (each keeps what it freed), and from how many bytes on memory is taken
#: from and given back to the system by itself. Source: mallopt(3).
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
#: What a process that reads has freed goes back from so many bytes on: 597 → 421 MB after every view over 100,000
#: tenants, in as much processor time. From 64 KB on it is 20 MB less still, and 4 % slower.
READING_BYTES = 1 << 20
#: What httpx imports for those who use it at a terminal, if it can.
_COMMAND = "httpx._main"


class NoPandas(MetaPathFinder):
    """Finds that pandas is not installed: pyarrow looks for it, and it takes a second and 30 to 60 MB."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)
        return None


def load_arrow_alone(*, reads: bool = False) -> None:
    """Load pyarrow without pandas, for good, and other libraries without their threads; before all other imports.

    33 MB of the alert process's 253. Nor does httpx, loaded later, bring the command with it that it has where rich is
    installed: 5 MB. One that ``reads`` much has Arrow take from the system, too (SYSTEM_POOL): 32 MB of 356.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    for name, pool in SYSTEM_POOL.items() if reads else ():
        os.environ.setdefault(name, pool)
    sys.modules.setdefault(_COMMAND, None)  # type: ignore[arg-type]  # as Python says that there is none
    with without_pandas():
        import pyarrow  # noqa: F401


@contextmanager
def without_pandas() -> Iterator[None]:
    """Have pyarrow, if it is loaded meanwhile for the first time, do without pandas for good."""
    if not sys.modules.keys().isdisjoint({"pyarrow", "pandas"}):
        yield
        return
    refuse = NoPandas()
    sys.meta_path.insert(0, refuse)
    try:
        yield
        if (arrow := sys.modules.get("pyarrow")) is not None:
            arrow.array([0])  # it looks for pandas at its first array
    finally:
        sys.meta_path.remove(refuse)


def give_back_memory(least: int = READING_BYTES, kept: int | None = None) -> None:
    """Have this process give back what it frees of ``least`` bytes or more, and keep ``kept`` (default: as many) at the
    end of its heap, from now on.

    Arrow's own allocator, and glibc's heaps for each thread, would hold it. After :func:`load_arrow_alone`.
    """
    import pyarrow as pa

    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # where the C library is another one, the system manages by itself
        library.mallopt(_ARENA_MAX, 1)
        library.mallopt(_MMAP_THRESHOLD, least)
        library.mallopt(_TRIM_THRESHOLD, least if kept is None else kept)
    pa.set_memory_pool(pa.system_memory_pool())


def trim() -> None:
    """Give back to the system what was freed in small pieces, all over the heap: after much was let go of at once.

    Source: malloc_trim(3); where the C library has none, nothing is done.
    """
    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
