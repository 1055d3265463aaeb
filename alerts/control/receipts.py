"""Each action ends with its receipt: what it saved whom and cost whom, in the journal and to those who are told.

The counterfactual is worked out by another process, one at a time, at low priority and within a time: the evaluation
of rules does not feel it.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from alerts.control.active_limit import Entry
from lake.clock import Clock
from lake.errors import SojournError

log = logging.getLogger(__name__)

DECISION = "receipt"
_ENDS = frozenset({"release", "revoke", "expire"})
#: What comes after an action counts, too: the minute after it, and what events take to arrive.
AFTER = timedelta(seconds=75)
#: Actions that ended longer ago have none but on demand (`sojourn actions receipt`).
LATEST = timedelta(hours=6)
#: How long one may take, and how often it is looked for actions that have ended (seconds).
TIMEOUT, EVERY = 120.0, 5.0
#: Journal rows that are looked at.
ROWS = 1000


class Journaled(Protocol):
    """What there is of a controller here."""

    def recent(self, limit: int) -> list[Entry]: ...

    def note(self, entries: Sequence[Entry]) -> None: ...


def due(rows: Sequence[Entry], now: datetime, after: timedelta = AFTER) -> list[Entry]:
    """The last rows of the actions in ``rows`` that were in force, have ended and have no receipt, the oldest first."""
    told = {row.action_id for row in rows if row.decision == DECISION}
    ended = {
        row.action_id: row
        for row in rows
        if row.decision in _ENDS
        and row.outcome == "applied"
        and not row.dry_run
        and row.tenant is not None
        and row.policy
        and row.action_id not in told
    }
    return sorted((row for row in ended.values() if after <= now - row.at <= LATEST), key=lambda row: row.at)


class Receipts:
    """Works in a thread of its own. ``command``, with the lake and an action's id behind it, prints the receipt as JSON
    (``reason``, ``inputs``); ``tell`` hears of each, and again of one that could not be told or journaled."""

    def __init__(
        self,
        command: Sequence[str],
        lake_root: Path,
        controller: Journaled,
        clock: Clock,
        tell: Callable[[Entry], None],
        *,
        after: timedelta = AFTER,
        timeout: float = TIMEOUT,
        every: float = EVERY,
    ) -> None:
        nice = ["nice", "-n", "10"] if shutil.which("nice") else []
        self._command = [*nice, *command, str(lake_root)]
        self._controller, self._clock, self._tell = controller, clock, tell
        self._after, self._timeout, self._every = after, timeout, every
        self._stop = threading.Event()
        self._running: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._work, name="receipts", daemon=True)

    def start(self) -> None:
        """Begin; actions that ended while nobody ran have theirs, too."""
        self._thread.start()

    def stop(self) -> None:
        """End, with the one that is being worked out, which is worked out after the next start."""
        self._stop.set()
        if (running := self._running) is not None:
            running.kill()
        if self._thread.is_alive():
            self._thread.join(5)

    def _work(self) -> None:
        while not self._stop.wait(self._every):
            try:
                rows = self._controller.recent(ROWS)
                for row in due(rows, self._clock.now() + self._clock.ahead, self._after):
                    entry = self._receipt(row)
                    if self._stop.is_set():
                        return
                    # In this order: what is in the journal is never told again.
                    self._tell(entry)
                    self._controller.note([entry])
            except (SojournError, sqlite3.Error) as error:
                log.warning("no receipt now: %s", error)

    def _receipt(self, row: Entry) -> Entry:
        base = replace(
            row,
            at=self._clock.now(),
            idempotency_key=f"sojourn-receipt-{row.action_id}",
            decision=DECISION,
            before=None,
            after=None,
            valid_until=None,
        )
        self._running = subprocess.Popen(
            [*self._command, row.action_id], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        try:
            out, complaint = self._running.communicate(timeout=self._timeout)
            told = json.loads(out)
            inputs = {str(name): str(value) for name, value in told["inputs"].items()}
            return replace(base, reason=str(told["reason"]), inputs=inputs, outcome="told")
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.communicate()
            why = f"it took longer than {self._timeout:g} s"
        except (ValueError, KeyError, TypeError, AttributeError):
            why = (complaint.strip().splitlines() or ["nothing was said"])[-1][:300]
        finally:
            self._running = None
        return replace(base, reason=f"no receipt: {why}", inputs={}, outcome="failed")
