"""What a process need not load, it does not: pandas, and a thread of some library's for each core."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

#: Libraries that make a thread for each core at import or first use.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "TOKIO_WORKER_THREADS")


class NoPandas(MetaPathFinder):
    """Finds that pandas is not installed: pyarrow looks for it, and it takes a second and 30 to 60 MB."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)
        return None


def load_arrow_alone() -> None:
    """Load pyarrow without pandas, for good, and other libraries without their threads; before all other imports.

    pyarrow looks for pandas at its first array, and keeps what it found. 33 MB of the alert process's 253.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    import pyarrow as pa

    if "pandas" not in sys.modules:
        refuse = NoPandas()
        sys.meta_path.insert(0, refuse)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(refuse)
