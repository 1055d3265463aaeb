"""What docs/scale.md says of a managed Spark, as it says it: a wheel, `spark-submit`, three workers, an object store.

Neither driver nor executors find the sources: their Python has the libraries alone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from lake.store import Lake
from tests.spark_analytics.test_cluster import QUICK, assert_executors_did_it
from tests.spark_analytics.test_job import assert_gold_is_bronze, write
from tests.support.s3 import BUCKET, CREDENTIALS, S3Server
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
WORKERS = 3
SETTINGS = """\
[lake]
root = "{home}"
path = "s3://{bucket}/managed"
[lake.storage_options]
aws_endpoint_url = "{store}"

[analyze]
driver_bytes = 0
max_bytes_per_trigger = 65536
[analyze.spark]
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "{quick}"
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the libraries, which knows nothing of this checkout."""
    program = tmp_path_factory.mktemp("bare") / "python"
    libraries = sysconfig.get_paths()["purelib"]
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec "{sys.executable}" -S "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[SparkCluster]:
    os.environ |= CREDENTIALS  # each worker has its own
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=WORKERS, python=bare_python) as running:
        yield running


def recipe(master: str) -> str:
    """The manual's commands, for this ``master``, which end when all is read."""
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8").partition("### A managed Spark")[2]
    found = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert found
    commands = found[1].rstrip()
    assert commands.count("--master …") == 1 and commands.endswith("-c sojourn.toml")
    return commands.replace("--master …", f"--master {master}") + " --once"


def checkout(folder: Path) -> Path:
    """The sources, apart from this checkout."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "tests", "benchmarks", "dist", "build", "*.egg-info")
    return Path(shutil.copytree(ROOT, folder, ignore=left_out))


def test_the_manuals_commands_analyse_on_three_workers_though_one_is_killed(
    cluster: SparkCluster, server: S3Server, bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = subprocess.run([bare_python, "-c", "import lake"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'lake'" in alone.stderr
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    lake = Lake(server.home(tmp_path / "home", "managed"))
    for number in range(4):
        write(lake, number)
    sources = checkout(tmp_path / "sources")
    (sources / "sojourn.toml").write_text(
        SETTINGS.format(home=lake.root, bucket=BUCKET, store=server.url, quick=QUICK), encoding="utf-8"
    )
    programs = [str(Path(sys.executable).parent), str(cluster.home / "bin"), cluster.environ["PATH"]]
    environ = {**cluster.environ, "PATH": os.pathsep.join(programs), "PIP_NO_BUILD_ISOLATION": "false"}
    log = tmp_path / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            ["bash", "-euc", recipe(cluster.master)],
            cwd=sources,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(lambda: lake.version("marks") > 0 or driver.poll() is not None, "the first commit", seconds=240)
        assert driver.poll() is None, log.read_text(errors="replace")
        cluster.kill_an_executor()
        assert driver.wait(timeout=240 * PATIENCE) == 0, log.read_text(errors="replace")
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    told = log.read_text(errors="replace")
    assert_executors_did_it(told)
    assert cluster.log.count("Launched executor") + cluster.log.count("Launching executor") >= WORKERS
    assert_gold_is_bronze(lake)
