"""Simulations that viewers start: one at a time, in a process of its own that is limited, nice and can be ended.

The dashboard knows nothing of the lab: it runs ``sojourn lab --json`` and reads what that says.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock, Thread, Timer
from time import monotonic
from typing import IO, Any

import streamlit as st

from dashboard.services.keys import QueueKey
from lake.errors import SojournError, UserError
from lake.visible import visible

log = logging.getLogger(__name__)
#: How long a simulation may take (seconds), what it may hold (bytes), and messages of a lake that it may run again.
LONGEST_SECONDS, MEMORY, MOST_MESSAGES = 240.0, 2 * 1024**3, 100_000
#: How much it gives way to everything else on the machine. Source: nice(1).
_NICE = 15
#: Results that are remembered, whoever asked.
_KEPT = 20
_LAB = (sys.executable, "-m", "sojourn.cli.main", "lab")


@dataclass(frozen=True, slots=True)
class Question:
    """What is simulated: the built-in ``scenario``, or what the lake has of ``place`` from ``since`` to ``until``."""

    scenario: str = ""
    place: QueueKey | None = None
    since: datetime | None = None
    until: datetime | None = None
    seeds: int = 3

    def arguments(self) -> list[str]:
        """How ``sojourn lab`` is asked this."""
        asked = ["--seeds", str(self.seeds), "--json"]
        if self.place is None or self.since is None or self.until is None:
            return [*asked, "--", self.scenario]
        asked += [f"--from-lake={self.since.isoformat()}..{self.until.isoformat()}", f"--most={MOST_MESSAGES}"]
        subscriber = [f"--subscriber={self.place.subscriber}"] if self.place.subscriber else []
        return [*asked, f"--queue={self.place.broker}/{self.place.queue}", *subscriber]


class Trial:
    """One simulation under way: ``found`` or ``error`` are there once it is ``done``.

    ``ended`` of ``runs`` runs are over; ``way`` is what the last of them tried.
    """

    def __init__(self, question: Question, command: Sequence[str]) -> None:
        self.question = question
        self.found: dict[str, Any] | None = None
        self.error = ""
        self.done = False
        self.ended, self.runs, self.way = 0, 0, ""
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()
        self._stopped = ""
        self._begun = monotonic()
        self._over: float | None = None

    @property
    def seconds(self) -> float:
        """For how long it has run, or did."""
        return (self._over or monotonic()) - self._begun

    def cancel(self, why: str = "cancelled") -> None:
        """End it."""
        with self._lock:
            if self.done:
                return
            self._stopped = self._stopped or why
            if self._process is not None:
                self._process.kill()

    def run(self) -> None:
        """Have it simulated, in the calling thread."""
        late = Timer(LONGEST_SECONDS, self.cancel, (f"it took longer than {LONGEST_SECONDS:.0f} s: choose less",))
        late.daemon = True
        late.start()
        try:
            with tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
                self.error = self._said(answer)
                if not self.error:
                    answer.seek(0)
                    self.found = json.load(answer)
        except (OSError, ValueError) as error:
            log.warning("a simulation failed: %s", visible(f"{type(error).__name__}: {error}"))
            self.error = "the simulation could not be run"
        finally:
            late.cancel()
            with self._lock:
                self._over, self.done = monotonic(), True

    def _said(self, answer: IO[str]) -> str:
        """Run the process to its end; what was wrong, in words."""
        with self._lock:
            if why := self._why():
                return why
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=answer, stderr=subprocess.PIPE, text=True
            )
        process = self._process
        _restrain(process.pid)
        wrong = ""
        with process:
            for line in process.stderr or ():
                wrong = self._heard(line) or wrong
        if process.returncode == 0:
            return ""
        return self._why() or wrong or "the simulation ended before it had an answer"

    def _why(self) -> str:
        """Why it was ended from here; empty where it was not."""
        return self._stopped

    def _heard(self, line: str) -> str:
        """Take a line of progress; give back any other."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            self.ended, self.runs, self.way = int(told["ended"]), int(told["runs"]), str(told["way"])
            return ""
        return line.strip().removeprefix("sojourn: ")


def _restrain(pid: int) -> None:
    """Let everything else go first, and hold the process to its bounds even where nobody is left to end it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        if sys.platform == "linux":
            resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
            seconds = int(LONGEST_SECONDS)
            resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))


@dataclass(slots=True)
class Laboratory:
    """Where simulations of one lake's viewers are run."""

    root: Path
    lock: Lock = field(default_factory=Lock)
    running: Trial | None = None
    known: dict[Question, Trial] = field(default_factory=dict)

    def start(self, question: Question) -> Trial:
        """Begin to simulate, or give back what is known of it. UserError while another simulation runs."""
        with self.lock:
            known = self.known.get(question)
            if known is not None and not known.error:
                return known
            if self.running is not None and not self.running.done:
                raise UserError("another viewer's simulation runs", "one runs at a time: wait for its end")
            trial = Trial(question, [*_LAB, "--lake", str(self.root), *question.arguments()])
            self.running = self.known[question] = trial
            while len(self.known) > _KEPT:
                del self.known[next(iter(self.known))]
        Thread(target=trial.run, name="viewer-lab", daemon=True).start()
        return trial


@st.cache_resource(max_entries=4, show_spinner=False)
def laboratory(root: str) -> Laboratory:
    """The laboratory of the lake at ``root``."""
    return Laboratory(Path(root))


@st.cache_data(max_entries=1, show_spinner="Asking the lab for its scenarios …")
def scenarios() -> dict[str, str]:
    """The titles of the lab's scenarios, by name. SojournError where the lab is not installed."""
    asked = subprocess.run(
        [*_LAB, "--list", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    if asked.returncode:
        raise SojournError(asked.stderr.strip().removeprefix("sojourn: ") or "the lab does not answer")
    return {one["name"]: one["title"] for one in json.loads(asked.stdout)}
