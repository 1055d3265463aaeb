"""Statements that viewers write: a few at a time, each in a process of its own that can be cancelled and is limited."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from time import monotonic

import pyarrow as pa
import streamlit as st

from lake.errors import SojournError, UserError
from lake.select import limited
from lake.tables import TABLES
from lake.views import VIEWS
from lake.visible import visible
from lake.worker.worker import Worker

log = logging.getLogger(__name__)
#: The most rows that an answer has; a download has them all.
MOST_ROWS = 10_000
#: Statements of viewers that run at once, whoever they are.
AT_ONCE = 2
#: A process ends when nobody has asked for so long.
_IDLE_SECONDS = 120.0
_KNOWN = frozenset({*TABLES, *(name for name, view in VIEWS.items() if view.public)})


class Ask:
    """One statement under way: ``rows`` or ``error`` are there once it is ``done``."""

    def __init__(self, sql: str, worker: Worker) -> None:
        self.sql = sql
        self.rows: pa.Table | None = None
        self.error = ""
        self.done = False
        self._worker = worker
        self._begun = monotonic()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """For how long it has run, or did."""
        return (self._ended or monotonic()) - self._begun

    def cancel(self) -> None:
        """End it."""
        if not self.done:
            self._worker.cancel()

    def run(self) -> None:
        """Have it answered, in the calling thread."""
        try:
            self.rows = self._worker.query(limited(self.sql, _KNOWN, MOST_ROWS + 1))
        except SojournError as error:
            self.error = str(error)
        except Exception as error:
            log.warning("a viewer's statement failed: %s", visible(f"{type(error).__name__}: {error}"))
            self.error = "the statement could not be answered"
        finally:
            self._ended, self.done = monotonic(), True


@dataclass(slots=True)
class StatementPool:
    """The workers that answer viewers of one lake."""

    root: Path
    lock: Lock = field(default_factory=Lock)
    workers: list[Worker] = field(default_factory=list)
    busy: int = 0

    def ask(self, sql: str) -> Ask:
        """Begin to answer ``sql``. UserError for what is no read-only SELECT, or while too many run already."""
        limited(sql, _KNOWN, MOST_ROWS)
        with self.lock:
            if self.busy >= AT_ONCE:
                raise UserError(f"{AT_ONCE} statements run already", "wait for one of them to end")
            self.busy += 1
            worker = self.workers.pop() if self.workers else Worker(self.root, spare=False, idle_seconds=_IDLE_SECONDS)
        ask = Ask(sql, worker)
        Thread(target=self._answer, args=(ask, worker), name="viewer-sql", daemon=True).start()
        return ask

    def _answer(self, ask: Ask, worker: Worker) -> None:
        try:
            ask.run()
        finally:
            with self.lock:
                self.busy -= 1
                self.workers.append(worker)


@st.cache_resource(max_entries=4, show_spinner=False)
def pool(root: str) -> StatementPool:
    """The pool of the lake at ``root``."""
    return StatementPool(Path(root))
