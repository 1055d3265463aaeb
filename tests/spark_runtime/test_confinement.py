"""The Java process that runs others' SQL: hardly any environment, no secret, and what the kernel keeps it from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lake.errors import UserError
from lake.store import Lake
from spark_analytics.runtime import confined
from spark_analytics.runtime.archive import SWITCH
from spark_analytics.runtime.confined import landlock_version
from spark_analytics.runtime.confinement import bare_environment, confined_command, described, must_be_confined

ROOT = Path(__file__).parents[2]
SECRET = "only-for-this-test"
needs_landlock = pytest.mark.skipif(landlock_version() < 4, reason="this kernel has no Landlock that knows of TCP")


@pytest.mark.spark
@pytest.mark.slow
@needs_landlock
def test_what_passes_every_check_by_mistake_meets_the_kernel_and_finds_no_secret(lake: Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("confined_session.py")), str(lake.root), str(outside)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), SWITCH: "off", "MY_SECRET": SECRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert (told["lake"], told["own rows"]) == (0, 1)
    for name, refusal in told["refused"].items():
        assert refusal is not None and SECRET not in refusal, name
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert not (lake.root / "written").exists()
    assert not {"MY_SECRET", "PYTHONPATH"} & {*told["environment"]}
    assert told["token"] == []


@needs_landlock
@pytest.mark.parametrize(
    ("script", "passes"),
    [
        ("open(folder + '/mine', 'w').write('x'); os.rename(folder + '/mine', folder + '/yours')", True),
        ("open(lake + '/there').read()", True),
        ("open(lake + '/there', 'a')", False),
        ("os.remove(lake + '/there')", False),
        ("open(lake + '/../secret').read()", False),
        ("os.listdir(lake + '/..')", False),
        ("os.symlink(lake + '/../secret', folder + '/link'); open(folder + '/link').read()", False),
        ("open(f'/proc/{os.getppid()}/environ').read()", False),
        ("os.kill(os.getppid(), 0)", False),
        ("socket.create_connection(('127.0.0.1', 1))", False),
        ("socket.create_server(('127.0.0.1', 0))", True),
    ],
)
def test_a_confined_process_writes_to_its_folder_and_reads_what_it_was_given(
    tmp_path: Path, script: str, passes: bool
) -> None:
    lake, folder = tmp_path / "lake", tmp_path / "folder"
    lake.mkdir()
    folder.mkdir()
    (lake / "there").write_text("x")
    (tmp_path / "secret").write_text(SECRET)
    reading = ["/usr", "/lib", "/lib64", "/etc", "/dev", sys.base_prefix, str(lake)]
    rules = json.dumps({"reading": reading, "writing": [str(folder)]})
    program = (
        f"import os, socket\nlake, folder = {str(lake)!r}, {str(folder)!r}\n"
        f"try:\n    {script}\nexcept PermissionError:\n    raise SystemExit(13)"
    )
    python = str(Path(sys.executable).resolve())
    run = subprocess.run(
        [sys.executable, "-I", "-S", confined.__file__, rules, python, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == (0 if passes else 13), run.stderr


def test_java_is_told_where_it_is_and_nothing_else() -> None:
    environ = {"JAVA_HOME": "/java", "SOJOURN_CONNECT_TOKEN": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "PATH": "/mine"}
    bare = bare_environment(environ, Path("/folder"))
    assert bare["JAVA_HOME"] == "/java"
    assert SECRET not in bare.values()
    assert bare["PATH"] == "/usr/bin:/bin"


def test_the_rules_name_the_lake_to_read_and_the_folder_to_write(tmp_path: Path) -> None:
    java = tmp_path / "jvm" / "bin" / "java"
    command = confined_command([str(java), "-cp", "/jars/*:/more/x.jar"], tmp_path / "lake", tmp_path / "folder")
    rules = json.loads(command[4])
    assert {str(tmp_path / "lake"), str(tmp_path / "jvm"), "/jars", "/more/x.jar"} <= {*rules["reading"]}
    assert rules["writing"] == [str(tmp_path / "folder"), "/dev/null"]
    assert not {"/", "/etc", "/home", "/root", "/tmp", "/proc", "/var"} & {*rules["reading"]}


@pytest.mark.parametrize("root", [True, False])
def test_where_the_kernel_can_confine_it_does_unless_told_otherwise(root: bool) -> None:
    assert must_be_confined(1, root=root, unconfined=False)
    assert not must_be_confined(1, root=root, unconfined=True)


def test_root_runs_others_sql_unconfined_only_when_asked_by_name() -> None:
    with pytest.raises(UserError, match="--unconfined"):
        must_be_confined(0, root=True, unconfined=False)
    assert not must_be_confined(0, root=True, unconfined=True)
    assert not must_be_confined(0, root=False, unconfined=False)


def test_what_is_confined_is_said() -> None:
    assert described(0) == "not confined: this kernel has no Landlock"
    assert "any connection" in described(3)
    assert "no connections" in described(7)
