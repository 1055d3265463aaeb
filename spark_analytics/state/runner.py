"""Runs the writer that keeps finished state at what gold has come to, from a thread beside the streams."""

from __future__ import annotations

import logging
import math
import threading
import time
from pathlib import Path

import pyarrow as pa

from lake.errors import SojournError
from spark_analytics.state.calm import Calm, waits
from spark_analytics.state.writer import Writer

log = logging.getLogger(__name__)

#: How often samples, which no batch announces, are looked for; where batches come, one step finishes both: behind one,
#: the next is waited for so long.
LOOK_SECONDS, NEXT_BATCH_SECONDS = 0.5, 1.0
#: A step is followed by a rest of half its length: what is finished must not starve what it is made of. One that begins
#: an epoch, with a row for every key, is no reason to rest for longer than this (seconds).
PACE, LONGEST_REST = 0.5, 0.15
#: What came too late is told of a later second until its queue is folded anew: after that long, and so many times what
#: that took the last time; for so long at a time, that live rows go on.
PATIENCE_SECONDS = 60.0
PATIENCE = 50.0
CORRECTING_SECONDS = 0.2
RETRY_SECONDS = 1.0
GRACE_SECONDS = 3.0


class StateRunner:
    """Finishes the state of the lake at ``root`` until closed. A failure is told, and tried again from the start.

    ``whole``: nobody goes on behind it, so that closing waits for all there is, and puts right what came too late.
    """

    def __init__(self, root: Path, *, whole: bool = False) -> None:
        self._root = root
        self._whole = whole
        self._writer: Writer | None = None
        self._patient_until: float | None = None  # None: nothing came too late
        self._correcting_took = 0.0
        self._woken, self._ending = threading.Event(), threading.Event()
        self._usual, self._pressing = Calm(), False
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def comes(self, partials: pa.Table) -> None:
        """``partials`` are on their way to gold: a batch that is told of soon."""
        self._usual.comes(partials)

    def wake(self, records: int | None) -> None:
        """There is something new in gold: a batch of so many ``records``, None where nobody counted them."""
        if records is None or not self._usual.brought(records):
            self._pressing = True
        self._woken.set()

    def close(self) -> None:
        """Finish what gold has come to by now, then end. A step that needs longer than GRACE_SECONDS is given up, but
        by one that is ``whole``."""
        self._ending.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(None if self._whole else GRACE_SECONDS)
            if self._thread.is_alive():
                return  # a cache half written: the next writer begins anew
        self._step(last=True)
        if self._writer is not None:
            self._writer.close()

    def _run(self) -> None:
        woken, started = False, -math.inf
        while not self._ending.is_set():
            woken = self._woken.wait(NEXT_BATCH_SECONDS if woken else LOOK_SECONDS)
            while woken and (seconds := waits(time.monotonic() - started, calm=self._is_calm)) > 0:
                self._woken.clear()
                if not self._woken.wait(seconds):
                    break
            self._pressing = False
            self._woken.clear()
            started = time.monotonic()
            if not self._step():
                self._ending.wait(RETRY_SECONDS)
            else:
                self._ending.wait(min(PACE * (time.monotonic() - started), LONGEST_REST))

    @property
    def _is_calm(self) -> bool:
        """Whether what has come can wait for what comes next."""
        return not (self._pressing or self._ending.is_set() or self._writer is None or self._writer.pressing)

    def _step(self, *, last: bool = False) -> bool:
        try:
            writer = self._writer = self._writer or Writer(self._root)
            started = time.monotonic()
            if last and self._whole:
                writer.step()
                return True
            patient = self._whole or self._patient_until is None or started < self._patient_until
            writer.step(patient=patient, within=CORRECTING_SECONDS)
            ended = time.monotonic()
            self._correcting_took += 0.0 if patient else ended - started
            if not patient and not writer.correcting:
                self._patient_until = None
            if writer.late and self._patient_until is None:
                self._patient_until = ended + max(PATIENCE_SECONDS, PATIENCE * self._correcting_took)
                self._correcting_took = 0.0
            return True
        except Exception as error:
            if isinstance(error, SojournError):
                log.warning("finished state is deferred: %s", error)
            else:
                log.exception("finished state is deferred")
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            return False
