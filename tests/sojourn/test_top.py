"""``sojourn top``: the overview in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.dashboard.scene import write_samples, write_story
from tests.sojourn.test_cli import HOME, is_one_clear_line, sojourn
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("top")
    write_story(root, end=datetime.now(UTC), queue="or\x1b[31mders")
    return root


def test_one_look_says_what_is_wrong_who_and_what_acts(lake: Path) -> None:
    run = sojourn("top", "--once", "--lake", str(lake), cwd=lake, env={"COLUMNS": "160"})
    assert run.returncode == 0, run.stderr
    said = run.stdout
    assert said.startswith("or\\x1b[31mders needs you"), "what a terminal would obey is shown"
    assert re.search(r"▲ critical since .* ago\): Tenant acme-7 holds the shared queue", said)
    assert "◆ acme-7 on or\\x1b[31mders: 9.5/s, expires in" in said
    assert "▲ needs you" in said and "✓ keeps up" in said and "Coverage" in said
    assert "\x1b" not in said
    narrow = sojourn("top", "--once", "--queues", "1", "--lake", str(lake), cwd=lake, env={"COLUMNS": "80"}).stdout
    assert "Coverage" not in narrow and "2 more queues" in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_programs_get_what_people_see_as_json(lake: Path) -> None:
    (line,) = sojourn("top", "--json", "--lake", str(lake), cwd=lake).stdout.splitlines()
    told = json.loads(line)
    worst = told["queues"][0]
    assert (worst["verdict"], worst["queue"]) == ("needs you", "or\x1b[31mders") and worst["backlog"] > 1000
    assert told["headline"].startswith("or\x1b[31mders needs you") and "freshness" in told
    assert told["limits"][0]["tenant"] == "acme-7" and told["alerts"][0]["severity"] == "critical"
    for instant in (told["at"], told["as_of"], worst["as_of"], worst["mode_since"]):  # as `sojourn why --json` has them
        assert "T" in instant and datetime.fromisoformat(instant).tzinfo is not None
    foretold = [one["foretold"] for one in told["queues"]]
    assert foretold[0]["reason"] == "no statement can hold its name" and foretold[0]["drained_in_seconds"] is None
    assert foretold[1:] == [None] * 2
    (action,) = sojourn("actions", "list", "--last", "1", "--json", "--lake", str(lake), cwd=lake).stdout.splitlines()
    about = sojourn("actions", "show", json.loads(action)["action_id"], "--json", "--lake", str(lake), cwd=lake)
    assert {json.loads(row)["tenant"] for row in about.stdout.splitlines()} == {"acme-7"}


def test_programs_are_foretold_of_queues_in_trouble_what_people_are(tmp_path: Path) -> None:
    write_story(tmp_path, end=datetime.now(UTC), seconds=360, noisy_from=120)
    worst, *others = json.loads(sojourn("top", "--json", "--lake", str(tmp_path), cwd=tmp_path).stdout)["queues"]
    ahead = worst["foretold"]
    assert ahead["known_seconds"] > 0 and ahead["target_seconds"] > 0 and ahead["reason"] is None
    assert set(ahead["drained_in_seconds"]) == {"p10", "p50", "p90"}
    assert [one["foretold"] for one in others] == [None] * 2, "they keep up"


def test_old_data_and_an_empty_lake_are_said(tmp_path: Path) -> None:
    write_samples(tmp_path, end=datetime(2026, 3, 1, tzinfo=UTC))
    assert "Its queues are shown as of 28 Feb" in sojourn("top", "--once", "--lake", str(tmp_path), cwd=tmp_path).stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "No queue has been seen yet" in sojourn("top", "--once", "--lake", str(empty), cwd=tmp_path).stdout
    is_one_clear_line(sojourn("top", "--lake", str(tmp_path / "none"), cwd=tmp_path), "there is no lake")


def test_on_a_terminal_it_goes_on_until_it_is_told_to_end(lake: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sojourn.cli.main", "top", "--every", "0.5", "--lake", str(lake)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=lake, env={**os.environ, "PYTHONPATH": str(HOME)}
    )
    os.close(theirs)
    said, deadline = b"", time.monotonic() + 30 * PATIENCE
    while said.count(b"needs you") < 3 and time.monotonic() < deadline:  # twice a look: above, and in the table
        if select.select([ours], [], [], 1)[0]:
            said += os.read(ours, 65536)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None and time.monotonic() < deadline:
        try:
            said += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    assert process.wait(timeout=30 * PATIENCE) == 0
    assert b"\x1b[?1049h" in said and b"\x1b[?1049l" in said, "the screen of before is given back"
    os.close(ours)
