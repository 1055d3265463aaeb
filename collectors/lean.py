"""A collecting process that stays small: what it need not load it does not, and what it freed it gives back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

#: glibc's mallopt parameter M_ARENA_MAX: heaps for threads; each keeps what it freed.
_ARENA_MAX = -8
_ARENAS = 2


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
    installed. Arrow's own allocator and glibc's heaps for each thread hold freed memory back; the system's, with few
    heaps, returned it soonest when all were measured under load (docs/brokers/nats.md).
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    if "pandas" not in sys.modules:
        refuse = _Refuse("pandas")
        sys.meta_path.insert(0, refuse)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(refuse)
