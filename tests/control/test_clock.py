"""A wall clock that is set lengthens and shortens no lease, neither while we run nor while nobody does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from alerts.control import Control, build
from alerts.control.settings import ControlSettings, PolicySettings
from lake.clock import Clock
from lake.store import Lake
from tests.control.conftest import POLICY, START, Loop, World

HOUR, ZERO = timedelta(hours=1), timedelta(0)
Serve = Callable[..., Any]
STEPS = pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["set back", "set forward"])


@dataclass
class Machine:
    """A world whose own clock is right, and a wall clock beside it that somebody sets."""

    folder: Path
    world: World = field(default_factory=World)
    set_by: timedelta = ZERO

    def start(self) -> tuple[Loop, Clock]:
        clock = Clock(lambda: self.world.now + self.set_by, lambda: self.world.now.timestamp())
        settings = ControlSettings(policies=(PolicySettings(**POLICY | {"lease_seconds": 60}),))
        control: Control = build(settings, self.folder / "lake", self.folder / "state", clock=clock)
        return Loop(self.world, control, Lake(self.folder / "lake")), clock


@STEPS
def test_a_lease_is_served_for_as_long_as_it_was_granted(tmp_path: Path, step: timedelta, serve: Serve) -> None:
    machine = Machine(tmp_path)
    loop, _ = machine.start()
    loop.throttle("t0")
    machine.set_by = step
    with serve(loop.control) as url:
        machine.world.advance(59)
        body = httpx.get(f"{url}/v1/limits").json()
        assert [limit["tenant"] for limit in body["limits"]] == ["t0"]
        assert body["generated_at"] == (machine.world.now + step).isoformat()
        machine.world.advance(1.5)
        assert httpx.get(f"{url}/v1/limits").json()["limits"] == []
    loop.control.controller.step(machine.world.now, [], machine.world.query)
    assert (loop.served(), loop.control.controller.active_limits) == ({}, {})
    assert machine.world.now + step in [row["at"] for row in loop.journal()], "the journal is for people"


@STEPS
def test_a_clock_that_is_set_changes_no_decision(tmp_path: Path, step: timedelta) -> None:
    traces = []
    for number, by in enumerate((ZERO, step)):
        machine = Machine(tmp_path / str(number))
        loop, _ = machine.start()
        loop.run(5, "t0")
        machine.set_by = by
        loop.run(15, "t0")
        machine.world.calm()
        loop.run(20)
        traces.append(loop.trace)
    assert traces[0] == traces[1]
    assert len(set(traces[0])) > 2, "it does decide"


@STEPS
def test_a_lease_is_as_long_for_the_next_process(tmp_path: Path, step: timedelta) -> None:
    machine = Machine(tmp_path)
    loop, _ = machine.start()
    loop.throttle("t0")
    machine.set_by = step
    machine.world.advance(10)
    loop.step("t0", ok=False)
    loop.control.close()
    again, clock = machine.start()
    (active,) = again.control.controller.active_limits.values()
    assert active.valid_until - clock.now() == timedelta(seconds=50)


@STEPS
def test_a_lease_is_as_long_where_the_clock_was_set_while_nobody_ran(tmp_path: Path, step: timedelta) -> None:
    machine = Machine(tmp_path)
    loop, _ = machine.start()
    loop.throttle("t0")
    loop.control.close()
    machine.set_by = step
    machine.world.advance(10)
    again, clock = machine.start()
    (active,) = again.control.controller.active_limits.values()
    assert active.valid_until - clock.now() == timedelta(seconds=50)


def test_a_clock_set_back_between_two_boots_lengthens_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    loop, _ = machine.start()
    loop.throttle("t0")
    loop.control.close()
    machine.set_by = -HOUR
    monkeypatch.setattr("lake.clock._boot", lambda: "another")
    again, clock = machine.start()
    (active,) = again.control.controller.active_limits.values()
    assert active.valid_until - clock.now() <= timedelta(seconds=60)
    assert clock.now() < START
