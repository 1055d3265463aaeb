"""Checkpoints of tables, written beside the work: a commit does not wait for that of the hundred before it.

Reading the log, writing it down in one file and removing what is too old takes 0.1 to 0.3 s of a table with many files.
The tables of finished state come to their hundredth version together; whoever waits for a row of theirs waited for all.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from deltalake.exceptions import DeltaError

from lake.errors import first_line
from lake.remote import Location, delta_table

log = logging.getLogger(__name__)

#: Log entries between two checkpoints; a checkpoint each 10 commits, Delta's default, costs seconds of pauses.
CHECKPOINT_INTERVAL = 100
#: Not a daemon: Python waits at its end for the one under way, instead of aborting when that comes back.
_WRITER = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
_WAITING: set[Location] = set()
_LOCK = threading.Lock()


def checkpoint_soon(table: Location) -> None:
    """Have the newest version of the table in folder ``table`` get a checkpoint; returns at once.

    What cannot be written is told in the log: readers then follow the entries since the checkpoint before.
    """
    with _LOCK:
        if table in _WAITING:
            return
        _WAITING.add(table)
    _WRITER.submit(_checkpoint, table)


def _checkpoint(path: Location) -> None:
    with _LOCK:
        _WAITING.discard(path)
    try:
        delta_table(path).create_checkpoint()
    except (DeltaError, OSError) as error:
        log.warning("no checkpoint of %s: %s", path, first_line(error))
