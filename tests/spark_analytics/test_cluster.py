"""`sojourn analyze` on a Spark cluster of three processes: executors compute and write, and counts stay exact."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lake.store import Lake
from spark_analytics.run import rebuild_state
from tests.spark_analytics.test_job import assert_gold_is_bronze, write
from tests.spark_analytics.test_side_by_side import lived, revision, told
from tests.support.deep import examples
from tests.support.finishing import finish
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
#: Compilers that start soon: each of these processes lives for seconds.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = """\
[analyze]
master = "{master}"
driver_memory = "512m"
quick_start = true
driver_bytes = 0
max_bytes_per_trigger = 65536
[analyze.spark]
"spark.executor.memory" = "512m"
"spark.executor.cores" = "1"
"spark.executor.extraJavaOptions" = "{quick}"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Driver:
    """`sojourn analyze --once` in a process of its own, with the cluster's master."""

    def __init__(self, cluster: SparkCluster, lake: Lake, command: list[str], how: str = "--once") -> None:
        folder = lake.root.parent
        self._log = folder / "driver.log"
        settings = folder / "sojourn.toml"
        settings.write_text(SETTINGS.format(master=cluster.master, quick=QUICK), encoding="utf-8")
        words = [*command, how, "-c", str(settings), "--lake", str(lake.root)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                cwd=folder,
                env=cluster.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # spark-submit is a Java process with a Python below it: they end together
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, all of it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def done(self) -> str:
        """The log, when it has ended well."""
        assert self._process.wait(timeout=180) == 0, self.log
        return self.log


def by_command(cluster: SparkCluster, lake: Lake, how: str = "--once") -> Driver:
    return Driver(cluster, lake, [sys.executable, "-m", "sojourn.cli.main", "analyze"], how)


def by_spark_submit(cluster: SparkCluster, lake: Lake) -> Driver:
    jars = ",".join(map(str, cluster.jars))
    submit = [str(cluster.home / "bin" / "spark-submit"), "--master", cluster.master, "--jars", jars]
    sizes = ["--driver-memory", "512m", "--executor-memory", "512m", "--driver-java-options", QUICK]
    sizes += ["--total-executor-cores", "1", "--conf", f"spark.executor.extraJavaOptions={QUICK}"]
    return Driver(cluster, lake, [*submit, *sizes, str(ROOT / "deploy" / "spark" / "analyze.py")])


def wait_for_marks(lake: Lake, version: int) -> None:
    """Until a batch beyond ``version`` is half written."""
    wait_until(lambda: lake.version("marks") > version, "the next commit", seconds=150, every=0.02)


def assert_executors_did_it(log: str) -> None:
    doers = re.findall(r"flow=events batch=\d+ by=(\w+)", log)
    assert doers and set(doers) == {"executors"}, log


#: Who begins, if anybody, and who goes on. A driver is killed in test_job, and here in a deep run.
DRIVERS = [(None, by_spark_submit), (by_spark_submit, by_command), (by_command, by_spark_submit)]


@pytest.mark.parametrize(("begins", "goes_on"), DRIVERS[: examples(1, 3)])
def test_executors_compute_and_write_and_counts_stay_exact_though_their_driver_is_killed_and_then_one_of_them(
    cluster: SparkCluster, lake: Lake, begins: Callable[..., Driver] | None, goes_on: Callable[..., Driver]
) -> None:
    for number in range(2):
        write(lake, number)
    if begins is not None:
        first = begins(cluster, lake)
        wait_for_marks(lake, 0)
        first.kill()
    for number in range(2, 4):
        write(lake, number)
    version = lake.version("marks")
    second = goes_on(cluster, lake)
    wait_for_marks(lake, version)
    cluster.kill_an_executor()  # which holds computed rows whose partials are not written yet
    assert_executors_did_it(second.done())
    assert_gold_is_bronze(lake)


def test_queues_are_folded_side_by_side_with_the_same_rows_though_one_executor_is_killed(
    cluster: SparkCluster, lake: Lake
) -> None:
    lived(lake.root, 2)
    finish(lake.root)
    before = revision(lake)
    rebuild_state(lake.root)
    wanted = told(lake, before)
    before, launched = revision(lake), cluster.launched
    driver = by_command(cluster, lake, "--rebuild-state")
    cluster.kill_an_executor(at_work=True)
    log = driver.done()
    assert "shares=2" in log and "folded side by side" in log, log
    assert cluster.launched - launched == 3, "the one that was killed was not replaced"
    assert told(lake, before) == wanted


def test_without_delta_s_jars_spark_submit_says_how_to_name_them(cluster: SparkCluster, lake: Lake) -> None:
    submit = [str(cluster.home / "bin" / "spark-submit"), "--master", "local[1]"]
    driver = Driver(cluster, lake, [*submit, str(ROOT / "deploy" / "spark" / "analyze.py")])
    with pytest.raises(AssertionError, match=r"--print-jars"):
        driver.done()
