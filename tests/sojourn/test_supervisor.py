"""The supervisor, on real processes: readiness, restarts, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lake.errors import SojournError, UserError
from sojourn.supervise import process
from sojourn.supervise.supervisor import Child, Event, State, Supervisor
from tests.support.waiting import PATIENCE

PATIENT = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: exit(0))\ntime.sleep(60)"
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, events: list[Event]) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "logs", tmp_path / "processes.json", events.append)
    yield made
    made.stop(within=1)


def python(name: str, code: str, **more: object) -> Child:
    return Child(name, [sys.executable, "-c", code], **more)  # type: ignore[arg-type]


def until(supervisor: Supervisor | None, done: Callable[[], bool], within: float = 15.0) -> None:
    deadline = time.monotonic() + PATIENCE * within
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        if supervisor:
            supervisor.tick()
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_child_is_restarted_and_the_restart_is_told(supervisor: Supervisor, events: list[Event]) -> None:
    supervisor.start(python("a", PATIENT))
    supervisor.wait_ready("a")
    first = supervisor.pid("a")
    os.kill(first, signal.SIGKILL)
    until(supervisor, lambda: supervisor.restarts("a") == 1 and supervisor.state("a") is State.READY)
    assert supervisor.pid("a") != first
    assert alive(supervisor.pid("a"))
    assert [event.text for event in events] == ["was ended by signal 9, restarting in 0.25 s"]


def test_a_child_that_keeps_dying_is_restarted_ever_later_then_given_up(
    supervisor: Supervisor, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.supervise.supervisor.FIRST_BACKOFF", 0.01)
    monkeypatch.setattr("sojourn.supervise.supervisor.MOST_DEATHS", 4)
    supervisor.start(python("a", "import sys; sys.exit('no luck today')"))
    until(supervisor, lambda: supervisor.state("a") is State.FAILED)
    assert supervisor.restarts("a") == 3
    assert "restarting in 0.01 s: no luck today" in events[0].text
    assert "restarting in 0.04 s" in events[2].text
    assert events[-1].text == "ended with code 1 4 times in a row, given up: no luck today"


def test_a_users_error_is_not_restarted_but_raised_in_the_childs_own_words(supervisor: Supervisor) -> None:
    supervisor.start(python("a", "import sys; print('sojourn: fix this', file=sys.stderr); sys.exit(2)"))
    supervisor.start(python("b", PATIENT, ready=lambda: False))
    with pytest.raises(UserError, match="a: fix this"):
        supervisor.wait_ready()
    assert supervisor.restarts("a") == 0


def test_a_child_that_is_never_ready_is_an_error_that_names_its_log(supervisor: Supervisor) -> None:
    supervisor.start(python("a", PATIENT, ready=lambda: False, ready_within=0.3))
    with pytest.raises(SojournError, match=r"a was not ready within 0 s: see .*a\.log"):
        supervisor.wait_ready()


def test_who_is_patient_waits_for_a_child_that_is_late(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(python("a", PATIENT, ready=(tmp_path / "ready").exists, ready_within=0.0))
    looks = 0

    def late() -> bool:
        nonlocal looks
        looks += 1
        if looks == 5:
            (tmp_path / "ready").touch()
        return False

    supervisor.wait_ready(unless=late, patient=True)
    assert supervisor.state("a") is State.READY and looks >= 5


def test_a_child_that_may_end_is_not_restarted(supervisor: Supervisor, events: list[Event]) -> None:
    supervisor.start(python("a", "print('done')", ends=True))
    until(supervisor, lambda: supervisor.state("a") is State.STOPPED)
    assert events == []


def test_stop_ends_even_a_child_that_will_not_and_what_it_started(supervisor: Supervisor, events: list[Event]) -> None:
    grandchild = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {STUBBORN!r}])\n{STUBBORN}"
    supervisor.start(python("a", grandchild))
    log = supervisor.logs / "a.log"
    until(supervisor, lambda: log.exists() and log.read_text().count("up") == 2)
    family = [psutil.Process(supervisor.pid("a")), *psutil.Process(supervisor.pid("a")).children(recursive=True)]
    assert len(family) == 2
    began = time.monotonic()
    supervisor.stop(within=0.5)
    assert time.monotonic() - began < 3
    until(None, lambda: not any(alive(one.pid) for one in family))
    assert [event.text for event in events] == ["did not stop within 0 s: killed"]


def test_a_child_is_stopped_before_those_that_it_needs(supervisor: Supervisor, tmp_path: Path) -> None:
    told = tmp_path / "order"
    slow = (
        "import pathlib, signal, sys, time\n"
        f"def stop(*_): time.sleep(0.3); open({str(told)!r}, 'a').write(sys.argv[1]); exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('up', flush=True)\ntime.sleep(60)"
    )
    for name, needs in (("broker", ()), ("receiver", ()), ("alert", ("receiver",)), ("worker", ("broker", "alert"))):
        supervisor.start(Child(name, [sys.executable, "-c", slow, name[0]], needs=needs))
    until(supervisor, lambda: all("up" in log.read_text() for log in supervisor.logs.iterdir()))
    supervisor.stop(within=10)
    order = told.read_text()
    assert sorted(order) == ["a", "b", "r", "w"]
    assert order[0] == "w"
    assert order.index("a") < order.index("r")


def test_nothing_is_left_when_the_supervisor_itself_is_killed(tmp_path: Path) -> None:
    roster = tmp_path / "processes.json"
    code = f"""
import sys, time
from pathlib import Path
from sojourn.supervise.supervisor import Child, Supervisor
supervisor = Supervisor(Path({str(tmp_path)!r}), Path({str(roster)!r}))
for name in "ab":
    supervisor.start(Child(name, [sys.executable, "-c", {STUBBORN!r}]))
while True:
    supervisor.tick()
    time.sleep(0.05)
"""
    home = str(Path(process.__file__).parents[2])
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": home})
    try:
        logs = [tmp_path / "a.log", tmp_path / "b.log"]
        until(None, lambda: all(log.exists() and "up" in log.read_text() for log in logs))
        children = [entry["pid"] for entry in json.loads(roster.read_text())["children"].values()]
        assert all(alive(pid) for pid in children)
    finally:
        parent.kill()
        parent.wait()
    until(None, lambda: not any(alive(pid) for pid in children), within=5)


def test_a_log_stays_within_its_bound(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_BYTES", 10_000)
    supervisor.start(python("a", "import time\nwhile True: print('x' * 99, flush=True); time.sleep(0.0005)"))
    rotated = supervisor.logs / "a.log.1"
    until(supervisor, rotated.exists)
    enough = time.monotonic() + 0.5
    until(supervisor, lambda: time.monotonic() > enough)
    assert sum(path.stat().st_size for path in supervisor.logs.iterdir()) < 200_000
    supervisor.stop(within=1)


def test_the_roster_tells_who_runs(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(python("a", PATIENT))
    supervisor.wait_ready()
    told = json.loads((tmp_path / "processes.json").read_text())
    assert told == {
        "supervisor": os.getpid(),
        "children": {"a": {"pid": supervisor.pid("a"), "state": "ready", "restarts": 0}},
    }
