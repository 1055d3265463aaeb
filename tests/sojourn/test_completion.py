"""What people expect of a command: their shell completes it, and ``--json`` is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sojourn.cli.main import app, run
from tests.dashboard.scene import write_story


@pytest.mark.parametrize(("words", "found"), [("sojourn wh", "why"), ("sojourn actions rev", "revoke")])
def test_a_shell_completes_commands(words: str, found: str) -> None:
    asked = {"_SOJOURN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "sojourn.cli.main"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [found]


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_a_word_after_completion_is_a_mistake_and_nothing_is_written(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run([option, "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"sojourn: {option} takes no value: 'nosuch'")
    assert len(said.err.splitlines()) == 1 and not list(tmp_path.iterdir())


def test_json_is_asked_for_shortly(tmp_path: Path) -> None:
    write_story(tmp_path, end=datetime.now(UTC), seconds=60, noisy_from=20)
    lake = ["--lake", str(tmp_path)]
    (limit,) = CliRunner().invoke(app, ["limits", "--json", *lake]).stdout.splitlines()
    assert json.loads(limit)["tenant"] == "acme-7"
    assert json.loads(CliRunner().invoke(app, ["why", "orders", "--json", *lake]).stdout)["queue"] == "orders"
