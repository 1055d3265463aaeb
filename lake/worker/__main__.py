"""The worker process: ``python -m lake.worker PARENT_PID``, started by :mod:`lake.worker.process` alone."""

from __future__ import annotations

import os
import sys

from lake.lean import NoPandas, give_back_memory
from lake.worker.limits import live_as_long_as


def main() -> None:
    """Load what statements need, then answer until the parent is gone."""
    live_as_long_as(int(sys.argv[1]))
    reads, writes = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints is no frame
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.meta_path.insert(0, NoPandas())
    from lake.worker.serve import serve

    give_back_memory()
    serve(reads, writes)
    os._exit(0)  # at once: there is nothing to save


if __name__ == "__main__":
    main()
