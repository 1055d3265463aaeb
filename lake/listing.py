"""Looking at a transaction log that others write to meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

T = TypeVar("T")

#: How long (seconds) is waited before each further look: whoever commits needs a millisecond for what belongs together.
PAUSES_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


def settled(look: Callable[[], T]) -> T:
    """What ``look`` at a table's log brings; the errors of deltalake where it fails however often it is tried.

    No folder is listed in one instant. Of a commit that is made meanwhile the listing may lack the entry and have its
    checksum, or the entry behind it, and deltalake then calls the log damaged: of a table with 100 commits a second and
    a reader that looks as often, at one commit in sixty. The next look finds the log whole.
    """
    for pause in PAUSES_SECONDS:
        try:
            return look()
        except TableNotFoundError:
            raise
        except DeltaError:
            time.sleep(pause)
    return look()


def refresh(table: DeltaTable) -> None:
    """Bring ``table`` to its newest version. Errors as of deltalake."""
    settled(table.update_incremental)
