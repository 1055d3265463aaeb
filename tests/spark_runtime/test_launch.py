"""Java begun ahead of pyspark: the same session, sooner; whatever stands in the way, Spark's own way is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lake.errors import SojournError
from spark_analytics.runtime import launch
from spark_analytics.runtime.archive import SWITCH, TRAINING, archive_flags, archive_path
from spark_analytics.runtime.java import Java, ensure_java, java_home, java_version, unwrapped
from spark_analytics.runtime.launch import Launch, command_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, sys
from spark_analytics.runtime.launch import begin
ahead = begin("512m")
early = "pyspark" in sys.modules
from spark_analytics.runtime.session import abandon, build_session
session = build_session("ahead", quick_start=True, conf={"spark.sql.shuffle.partitions": "3"}, ahead=ahead)
told = {"early": early, "inherited": [name for name in os.environ if "GATEWAY" in name]}
told["partitions"] = session.conf.get("spark.sql.shuffle.partitions")
told["one"] = session.sql("SELECT 1 AS one").toArrow().to_pylist()
abandon()
told["ended"] = ahead.process.poll() is not None
told["again"] = build_session("anew", quick_start=True).sql("SELECT 2 AS two").toArrow().to_pylist()
print(json.dumps(told))
"""


def made_home(folder: Path, version: int = 17) -> dict[str, str]:
    """An environment as `prepare_environment` makes it, around a Java that only says its version."""
    java = folder / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (folder / "jvm" / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}.0.1"\n')
    (folder / "spark").mkdir()
    cache = {"SOJOURN_CACHE": str(folder / "cache")}
    home = java_home(Java(java, version, "PATH"), cache)
    return {**cache, "JAVA_HOME": str(home), "SPARK_HOME": str(folder / "spark")}


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_joins_the_java_that_was_begun_and_can_begin_anew(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), SWITCH: "off"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout.splitlines()[-1]) == {
        "early": False,
        "inherited": [],
        "partitions": "3",
        "one": [{"one": 1}],
        "ended": True,
        "again": [{"two": 2}],
    }
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("sojourn-java")] == []


def test_who_configures_spark_by_its_own_files_gets_its_own_launcher(tmp_path: Path) -> None:
    environ = made_home(tmp_path)
    assert command_of({}, {**environ, "SPARK_CONF_DIR": "/etc/spark"}) is None
    assert command_of({}, {**environ, "PYSPARK_SUBMIT_ARGS": "--verbose pyspark-shell"}) is None
    (tmp_path / "spark" / "conf").mkdir()
    assert command_of({}, environ) is None


def test_a_java_that_cannot_tell_the_command_line_is_left_to_sparks_scripts(tmp_path: Path) -> None:
    environ = made_home(tmp_path)
    assert command_of({"spark.driver.memory": "1g"}, environ) is None
    assert list((tmp_path / "cache" / "java").glob("launch-*")) == []


def test_an_archive_is_used_where_it_fits_and_asked_for_while_training(tmp_path: Path) -> None:
    environ = made_home(tmp_path)
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    command = [f"{environ['JAVA_HOME']}/bin/java", "-cp", str(jar), "Main"]
    assert archive_flags(command, environ) == []
    assert archive_flags(command, {**environ, TRAINING: "/x"})[-1] == "-XX:ArchiveClassesAtExit=/x"
    archive = archive_path(command, environ)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.touch()
    assert archive_flags(command, environ)[-1] == f"-XX:SharedArchiveFile={archive}"
    assert archive_flags(command, {**environ, SWITCH: "ready"}) == archive_flags(command, environ)
    assert archive_flags(command, {**environ, SWITCH: "off"}) == []
    jar.write_bytes(b"12")  # another jar: another archive
    assert archive_flags(command, environ) == []


def test_newer_javas_keep_more_than_classes(tmp_path: Path) -> None:
    environ = made_home(tmp_path, version=25)
    command = [f"{environ['JAVA_HOME']}/bin/java", "-cp", "", "Main"]
    assert archive_flags(command, {**environ, TRAINING: "/x"})[-1] == "-XX:AOTCacheOutput=/x"


@pytest.mark.spark
def test_a_damaged_archive_costs_time_and_nothing_else(tmp_path: Path) -> None:
    java = ensure_java()
    damaged = tmp_path / "classes.jsa"
    damaged.write_bytes(b"\0" * 4096)
    option = "AOTCache" if java.version >= 25 else "SharedArchiveFile"
    flags = ["-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:{option}={damaged}"]
    run = subprocess.run([java.executable, *flags, "-version"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_our_wrapper_is_seen_through(tmp_path: Path) -> None:
    environ = made_home(tmp_path)
    wrapper = Path(environ["JAVA_HOME"]) / "bin" / "java"
    assert unwrapped(wrapper) == tmp_path / "jvm" / "bin" / "java"
    assert unwrapped(tmp_path / "jvm" / "bin" / "java") == tmp_path / "jvm" / "bin" / "java"
    assert ensure_java({"JAVA_HOME": environ["JAVA_HOME"]}).version == 17
    assert java_version(tmp_path / "nowhere" / "java") is None


#: Instead of Java: tells where it listens after so many seconds, and ends with its input.
SLOW = """
import os, struct, sys, time
time.sleep(float(sys.argv[1]))
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + ".draft", "wb") as file:
    file.write(struct.pack("!ii", 4711, 6) + b"secret")
os.rename(path + ".draft", path)
sys.stdin.read()
"""


def launched(seconds: float, program: str = SLOW) -> Launch:
    return Launch([sys.executable, "-c", program, str(seconds)], {**os.environ, SWITCH: "off"})


def test_java_is_waited_for_and_what_is_waited_for_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launch, "_TOLD_SECONDS", 0.0)
    caplog.set_level("INFO")
    with launched(0.3) as one:
        assert one.address() == (4711, "secret")
    assert [record.message for record in caplog.records if "waiting for Spark's Java" in record.message]


def test_who_is_stopped_does_not_wait_for_java_any_longer() -> None:
    stop = threading.Event()
    stop.set()
    with launched(3600.0) as one:
        assert not one.wait(stop)
        one.process.wait()  # it is ended as well


def test_a_java_that_ends_is_told_from_one_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with launched(0.0, "raise SystemExit(3)") as one, pytest.raises(SojournError, match="ended before"):
        one.address()
    monkeypatch.setattr(launch, "_PATIENCE_SECONDS", 0.0)
    with launched(3600.0) as one:
        with pytest.raises(SojournError, match="was not there after"):
            one.address()
        one.process.wait()  # it is ended: nobody would ever reach it


LEAVING = f"""
import sys
from spark_analytics.runtime.launch import Launch
one = Launch([sys.executable, "-c", {SLOW!r}, "3600"], {{"{SWITCH}": "off"}})
print(one.process.pid, one.folder, flush=True)
sys.exit(1)
"""


def test_whoever_leaves_while_java_starts_leaves_no_java_behind() -> None:
    """Its folder gone, it could not tell where it listens, and would wait for that for ever."""
    run = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, cwd=ROOT)
    pid, folder = run.stdout.split()
    wait_until(lambda: not is_running(int(pid)), "the process to be gone")
    assert not Path(folder).exists()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
