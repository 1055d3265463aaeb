"""SIGKILL at any instant: limits stay with their leases, the journal tells each decision once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.control.journal import Journal
from alerts.control.state import State
from lake.errors import UserError
from lake.store import Lake, LakeError
from tests.support.waiting import wait_until

Start = Callable[..., Any]

_CHILD = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from alerts.control import build
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.control.active_limit import Key, RuleKey, ActiveLimit, Target
from alerts.laws.limits import Limit

folder = Path(sys.argv[1])
settings = ControlSettings(policies=(PolicySettings(name="fair-share", dry_run=False),))
control = build(settings, folder / "lake", folder / "state")
key = Key("fair-share", Target("nats", "orders", "t0"))
now = datetime.now(UTC).timestamp()
limit = Limit(10.0, 10.0, now, now + 600, 120.0)
active = ActiveLimit(key, "a1", RuleKey("tenants", "NoisyTenant"), "limits_api", False, 10.0, limit, "why")
control.controller._commit({key: active}, [], {})
print(limit.valid_until, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_controller_comes_back_with_the_same_limits_and_leases(
    tmp_path: Path, start: Start, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == -9, child.stderr
    world.now = datetime.now(UTC)
    monkeypatch.setattr("lake.clock._boot", lambda: "the simulated world's")
    loop = start(lease_seconds=600)
    (limit,) = loop.control.board.snapshot.limits
    assert (limit.tenant, limit.rate) == ("t0", 10.0)
    assert limit.valid_until.timestamp() == pytest.approx(float(child.stdout), abs=1e-5)


def test_a_crash_between_the_lakes_commit_and_our_note_of_it_doubles_no_row(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = start()
    monkeypatch.setattr(State, "flushed", lambda self, up_to: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        loop.throttle("t0")
    monkeypatch.undo()
    assert loop.decisions() == ["throttle"]
    loop.control.close()
    loop = start()
    loop.world.noisy_rate = 10
    loop.run(9, "t0")
    assert loop.decisions() == ["throttle", "hold"]


def test_rows_wait_while_the_lake_takes_none_and_arrive_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = start()

    def refuse(*_: object, **__: object) -> bool:
        raise LakeError("the disk is full")

    monkeypatch.setattr(Lake, "append", refuse)
    loop.throttle("t0")
    assert loop.served() == {"t0": 10.0}
    monkeypatch.undo()
    assert loop.journal() == []
    loop.world.noisy_rate = 10
    loop.run(9, "t0")
    assert loop.decisions() == ["throttle", "hold"]


def test_nothing_acts_when_its_record_cannot_be_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = start()
    monkeypatch.setattr(Journal, "full", lambda self: True)
    loop.throttle("t0")
    assert loop.served() == {}


def test_what_cannot_be_remembered_is_not_put_in_force(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    loop = start()
    with sqlite3.connect(loop.control.state.path) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON standings BEGIN SELECT RAISE(FAIL, 'disk is full'); END")
    loop.throttle("t0")
    assert (loop.served(), loop.control.controller.active_limits, loop.journal()) == ({}, {}, [])
    assert "disk is full" in caplog.text
    with sqlite3.connect(loop.control.state.path) as other:
        other.execute("DROP TRIGGER full")
    loop.run(2, "t0")
    assert loop.served() == {"t0": 10.0}


def test_a_state_that_is_not_a_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "control.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(UserError, match="cannot be used"):
        State(tmp_path)


_ACTING = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from alerts.control import build
from alerts.control.settings import ControlSettings
from alerts.control.active_limit import Key, RuleKey, ActiveLimit, Target
from alerts.laws.limits import Limit

folder = Path(sys.argv[1])
settings = ControlSettings.model_validate({
    "policies": [{"name": "fair-share", "mode": "auto", "actuator": "paper"}],
    "actuators": [{"kind": "file", "name": "paper", "path": str(folder / "limits.json")}],
})
control = build(settings, folder / "lake", folder / "state")
key = Key("fair-share", Target("nats", "orders", "t0"))
now = datetime.now(UTC).timestamp()
limit = Limit(10.0, 10.0, now, now + 3, 120.0)
active = ActiveLimit(key, "a1", RuleKey("tenants", "NoisyTenant"), "paper", False, 10.0, limit, "why")
control.controller._commit({key: active}, [], {})
print((folder / "limits.json").read_text(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_controller_left_at_another_server_ends_with_its_lease_though_nobody_comes_back(
    tmp_path: Path, start: Start
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _ACTING, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == -9, child.stderr
    assert json.loads(child.stdout)["limits"][0]["rate"] == 10.0
    limits = tmp_path / "limits.json"
    wait_until(lambda: json.loads(limits.read_text()) == {"limits": []}, "the reaper to end it")
    loop = start(actuators=[{"kind": "file", "name": "paper", "path": str(limits)}], actuator="paper")
    loop.run(1)
    (row,) = [row for row in loop.journal() if row["reason"].startswith("ended by the reaper")]
    assert (row["decision"], row["actuator"], row["action_id"]) == ("expire", "paper", "a1")
