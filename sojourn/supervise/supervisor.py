"""The supervisor: starts children in order, restarts the dead with backoff, leaves nothing behind.

It has no thread of its own. Whoever runs it calls :meth:`Supervisor.tick` a few times a second from one thread: the
kernel binds a child's life to the *thread* that started it, so that thread must be the one that lives longest.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from lake.errors import SojournError, UserError
from lake.files import write_atomically
from sojourn.client.backoff import doubled
from sojourn.supervise.process import Process

FIRST_BACKOFF = 0.25
LONGEST_BACKOFF = 10.0
#: A child that dies this many times in a row, without living ``STEADY_SECONDS`` in between, is given up.
MOST_DEATHS = 8
STEADY_SECONDS = 30.0
#: The exit code with which our parts say that the user must fix something: a restart would not help.
REFUSED = 2
TICK_SECONDS = 0.05
START_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Child:
    """What to run under which name, and how to know that it is ready.

    One that ``ends`` may exit with 0 by itself. Whom it ``needs`` is asked to stop only after it has stopped itself.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] | None = None
    ready_within: float = 90.0
    ends: bool = False
    needs: Sequence[str] = ()


class State(Enum):
    """Where a child stands."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a child, in one line."""

    child: str
    text: str
    bad: bool


@dataclass(slots=True)
class _Watched:
    child: Child
    process: Process
    state: State = State.STARTING
    deaths: int = 0
    restarts: int = 0
    restart_at: float = 0.0


class Supervisor:
    """Children by name; ``on_event`` hears in one line whatever happens to one of them.

    ``logs`` is the folder of their output, ``roster`` a file that always tells each child's process id and state.
    """

    def __init__(self, logs: Path, roster: Path, on_event: Callable[[Event], None] = lambda event: None) -> None:
        self.logs = logs
        self._roster = roster
        self._told = ""
        self._since = time.monotonic()
        self._on_event = on_event
        self._watched: dict[str, _Watched] = {}

    def start(self, child: Child) -> None:
        """Start ``child`` without waiting for it."""
        process = Process(child.command, child.env, self.logs / f"{child.name}.log")
        self._watched[child.name] = _Watched(child, process)
        self._tell()

    def wait_ready(self, *names: str, unless: Callable[[], bool] = lambda: False, patient: bool = False) -> None:
        """Wait until the named children (all, if none is named) are ready, or ``unless`` turns true.

        Raises UserError with the child's own words where it refused to run, SojournError where it is not ready in time
        and we are not ``patient``.
        """
        watched = [self._watched[name] for name in names or self._watched]
        since = time.monotonic()
        while not unless() and not all(entry.state is State.READY for entry in watched):
            self.tick()
            for entry in watched:
                name, log = entry.child.name, entry.process.log
                if entry.state is State.FAILED:
                    raise self.failure(name)
                late = time.monotonic() - since > entry.child.ready_within and not patient
                if entry.state is not State.READY and late:
                    raise SojournError(f"{name} was not ready within {entry.child.ready_within:.0f} s: see {log}")
            time.sleep(TICK_SECONDS)

    def tick(self) -> None:
        """Look at every child once: note who is ready, restart who died, bound the logs.

        Raises UserError where a child refuses to run soon after the start; later that is an event like others, since
        one part that does not run must not stop another.
        """
        for entry in list(self._watched.values()):
            if entry.state in (State.STARTING, State.READY):
                if (code := entry.process.exit_code()) is not None:
                    self._died(entry, code)
                elif entry.state is State.STARTING and (entry.child.ready is None or entry.child.ready()):
                    entry.state = State.READY
                elif entry.deaths and entry.process.lived() > STEADY_SECONDS:
                    entry.deaths = 0
                entry.process.bound_log()
            elif entry.state is State.WAITING and time.monotonic() >= entry.restart_at:
                entry.process = Process(entry.child.command, entry.child.env, entry.process.log)
                entry.restarts += 1
                entry.state = State.STARTING
        self._tell()
        for name, entry in self._watched.items():
            if entry.state is State.FAILED and entry.process.exit_code() == REFUSED and self._starting_up:
                raise self.failure(name)

    def _tell(self) -> None:
        children = {
            name: {"pid": entry.process.pid, "state": entry.state.value, "restarts": entry.restarts}
            for name, entry in self._watched.items()
        }
        text = json.dumps({"supervisor": os.getpid(), "children": children}, indent=2) + "\n"
        if text != self._told:
            write_atomically(self._roster, text)
            self._told = text

    @property
    def _starting_up(self) -> bool:
        return time.monotonic() - self._since < START_UP_SECONDS

    def _died(self, entry: _Watched, code: int) -> None:
        entry.process.kill()  # what it may have left in its process group
        if code == 0 and entry.child.ends:
            entry.state = State.STOPPED
            return
        entry.deaths += 1
        said = entry.process.last_line()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        name = entry.child.name
        if code == REFUSED:
            entry.state = State.FAILED
            if not self._starting_up:
                self._on_event(Event(name, said or how, bad=True))
        elif entry.deaths >= MOST_DEATHS:
            entry.state = State.FAILED
            self._on_event(Event(name, f"{how} {entry.deaths} times in a row, given up: {said}", bad=True))
        else:
            pause = doubled(entry.deaths, FIRST_BACKOFF, LONGEST_BACKOFF)
            entry.restart_at = time.monotonic() + pause
            entry.state = State.WAITING
            self._on_event(Event(name, f"{how}, restarting in {pause:.2g} s" + (f": {said}" if code > 0 else ""), True))

    def state(self, name: str) -> State:
        """Where the child stands."""
        return self._watched[name].state

    def states(self) -> dict[str, State]:
        """Where each child stands, in the order of starting."""
        return {name: entry.state for name, entry in self._watched.items()}

    def pid(self, name: str) -> int:
        """The process id of the child's present run."""
        return self._watched[name].process.pid

    def restarts(self, name: str) -> int:
        """How often the child has been restarted."""
        return self._watched[name].restarts

    def failure(self, name: str) -> SojournError:
        """Why a FAILED child failed, in its own last words."""
        entry = self._watched[name]
        said = entry.process.last_line().removeprefix("sojourn: ")
        if entry.process.exit_code() == REFUSED:
            return UserError(f"{name}: {said}")
        return SojournError(f"{name} does not stay up: {said} (see {entry.process.log})")

    def stop(self, *names: str, within: float = 8.0) -> None:
        """Stop the named children, or all, each before those it needs; kill what remains after ``within`` seconds."""
        entries = [self._watched[name] for name in names or self._watched]
        entries = [entry for entry in entries if entry.state is not State.STOPPED]
        for entry in entries:
            if entry.state is not State.FAILED:
                entry.state = State.STOPPING
        deadline = time.monotonic() + within
        untold, living = list(entries), list(entries)
        while living and time.monotonic() < deadline:
            needed = {name for entry in living for name in entry.child.needs}
            for entry in [entry for entry in untold if entry.child.name not in needed]:
                entry.process.terminate()
                untold.remove(entry)
            time.sleep(TICK_SECONDS)
            living = [entry for entry in living if entry.process.group_alive()]
        for entry in entries:
            if entry.process.exit_code() is None and entry not in untold:
                self._on_event(Event(entry.child.name, f"did not stop within {within:.0f} s: killed", bad=True))
            entry.process.kill()
            if entry.state is not State.FAILED:
                entry.state = State.STOPPED
        self._tell()
