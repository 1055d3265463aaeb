"""The journal: each decision that changed something, or was newly refused, is one row of the ``actions`` table."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pyarrow as pa

from alerts.control.active_limit import Entry
from alerts.control.state import State
from lake.errors import SojournError
from lake.store import Lake
from lake.tables import ACTIONS

log = logging.getLogger(__name__)

_BATCH = 1000
#: With so many rows that the lake did not take, no further action is taken: nothing acts unrecorded.
MAX_OUTBOX = 10_000


class Journal:
    """Carries rows from the outbox into the lake, each exactly once. Belongs to one thread."""

    def __init__(self, state: State, lake_root: Path) -> None:
        self._state = state
        self._lake = Lake(lake_root)
        self._app_id = f"sojourn-control-{state.instance}"
        self._failing = False
        # A crash may have come between the lake's commit and our note of it.
        self._reconciled = False

    def flush(self) -> bool:
        """Bring all waiting rows to the lake; False if it did not take them now."""
        try:
            if not self._reconciled:
                done = self._lake.committed(ACTIONS.name, self._app_id)
                if done is not None:
                    self._state.flushed(done)
                self._reconciled = True
            while numbered := self._state.outbox(_BATCH):
                last = numbered[-1][0]
                rows = rows_of([entry for _, entry in numbered])
                self._lake.append(ACTIONS.name, rows, app_id=self._app_id, version=last)
                self._state.flushed(last)
        except SojournError as error:
            if not self._failing:
                log.warning("the journal waits for the lake: %s", error)
            self._failing = True
            # It may have been committed all the same: look again before the next try.
            self._reconciled = False
            return False
        self._failing = False
        return True

    def full(self) -> bool:
        """Whether so much waits for the lake that no more may be decided."""
        return self._failing and self._state.outbox_length() >= MAX_OUTBOX


def rows_of(entries: list[Entry]) -> pa.Table:
    """``entries`` as rows of the ``actions`` table."""
    rows = [dataclasses.asdict(entry) | {"inputs": list(entry.inputs.items())} for entry in entries]
    return pa.Table.from_pylist(rows, schema=ACTIONS.schema)
