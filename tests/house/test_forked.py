"""Tests that several processes run are told as if one had, and one that ends takes a single test with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.forked import groups_of

ROOT = Path(__file__).parents[2]
CONFTEST = """
import os, pathlib, pytest
from tests.support.forked import Forked

def pytest_configure(config):
    config.pluginmanager.register(Forked(3))

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    yield folder
    (pathlib.Path(__file__).parent / f"ended-{os.getpid()}").touch()
"""
FILE = """
import os, time, warnings, pytest

def test_first(server, capfd):
    print("said")
    os.system("echo as well")
    assert capfd.readouterr().out == "said\\nas well\\n"

@pytest.mark.skipif("not skipped", reason="because")
def test_second(): ...

def test_third(server):
    warnings.warn("careful")
    print("to be seen")
    assert server.name != {number}, "wrong in {number}"

def test_fourth(server):
    if {number} == 2:
        os._exit(3)

def test_fifth(server, tmp_path):
    assert os.listdir(server) == os.listdir(tmp_path) == []
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)


def test_what_fails_is_skipped_warned_of_or_ends_its_process_is_told_and_all_others_run(tmp_path: Path) -> None:
    for number in range(5):
        text = FILE.replace("not skipped", str(number == 4)).replace("!= {number}", f"!= 'x' and {number} != 3")
        (tmp_path / f"test_{number}.py").write_text(text.replace("{number}", str(number)))
    done = run(tmp_path, "--durations=1")
    assert done.returncode == 1, done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert "2 failed, 22 passed, 1 skipped, 5 warnings" in last, done.stdout + done.stderr
    assert done.stdout.count("\nto be seen\n") == 1 and "AssertionError: wrong in 3" in done.stdout
    assert "UserWarning: careful" in done.stdout and "because" in done.stdout
    assert "the process that ran it ended" in done.stdout and "test_fourth" in done.stdout
    assert 2 <= len([*tmp_path.glob("ended-*")]) <= 3, (
        "what lasts for a session ends with each process but the lost one"
    )


def test_after_the_last_failure_that_is_wanted_the_processes_end_what_they_started(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text(
            f"import time\ndef test_it(server):\n    time.sleep({600 if number else 0})\n    assert {number}\n"
        )
    done = run(tmp_path, "-x")
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout + done.stderr
    assert len([*tmp_path.glob("ended-*")]) >= 1


def test_without_a_process_that_lives_no_test_counts_as_passed(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text("import os\ndef test_one(): os._exit(1)\ndef test_two(): ...\n")
    done = run(tmp_path)
    assert done.returncode == 1 and "4 failed, 4 passed" in done.stdout, done.stdout + done.stderr


def test_files_that_share_a_server_are_one_group_and_those_with_spark_are_spread() -> None:
    files = [path.relative_to(ROOT) for path in sorted(ROOT.glob("tests/**/test_*.py"))]
    items: list[Any] = [
        SimpleNamespace(nodeid=f"{file}::{name}", path=ROOT / file) for file in files for name in ("one", "two")
    ]
    groups = groups_of(items, 6)
    assert sorted(item.nodeid for group in groups for item in group) == sorted(item.nodeid for item in items)
    of = [{item.nodeid.split("::")[0] for item in group} for group in groups]
    assert [len(files) for files in of if any("/kafka/test" in file for file in files)] > [5]
    spark = [
        files for files in of if any(file.startswith("tests/spark_analytics/") for file in files) and len(files) > 1
    ]
    assert len(spark) == 3 and len([files for files in of if len(files) > 1]) > 5
    assert len(groups_of(items, 2)) == len(groups) - 2
