"""The worker process: ``python -m lake.worker PARENT_PID``, started by :mod:`lake.worker.process` alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

from lake.worker.limits import live_as_long_as


class _Refuse(MetaPathFinder):
    """Finds that pandas is not installed: pyarrow looks for it, and it takes a second and 50 MB."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)
        return None


def main() -> None:
    """Load what statements need, then answer until the parent is gone."""
    live_as_long_as(int(sys.argv[1]))
    reads, writes = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints is no frame
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.meta_path.insert(0, _Refuse())
    from lake.worker.serve import serve

    serve(reads, writes)
    os._exit(0)  # at once: there is nothing to save


if __name__ == "__main__":
    main()
