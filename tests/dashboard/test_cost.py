"""What Sojourn costs is what the kernel has counted of its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard import cost
from dashboard.cost import Meter

BUSY = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


def test_a_part_that_works_through_a_child_costs_what_the_child_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(cost, "monotonic", lambda: now[0])
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        roster = tmp_path / cost.ROSTER
        roster.parent.mkdir(parents=True)
        children = {"analyze": {"pid": busy.pid}, "other's": {"pid": os.getppid()}, "gone": {"pid": 0}}
        roster.write_text(json.dumps({"supervisor": os.getpid(), "children": children}))
        meter = Meter()
        assert {one.part: one.cores for one in meter.read(tmp_path)} == {"analyze": None, "dashboard": None}
        spent = cost._used(busy.pid)
        while (later := cost._used(busy.pid)) is not None and spent is not None and later[0] < spent[0] + 0.3:
            pass
        now[0] = cost.LEAST_SECONDS
        found = {one.part: one for one in meter.read(tmp_path)}
        assert found["analyze"].cores is not None and found["analyze"].cores >= 0.02
        assert found["analyze"].megabytes > 5
    finally:
        for pid in [*cost._family(busy.pid)]:
            os.kill(pid, 9)
        busy.wait()


def test_without_a_roster_or_with_a_foreign_one_it_is_this_server_alone(tmp_path: Path) -> None:
    roster = tmp_path / cost.ROSTER
    roster.parent.mkdir(parents=True)
    for text in (None, "[]", "{", '{"supervisor": 1, "children": {"alert": {"pid": "x"}}}'):
        if text is not None:
            roster.write_text(text)
        assert [one.part for one in Meter().read(tmp_path)] == ["dashboard"]
