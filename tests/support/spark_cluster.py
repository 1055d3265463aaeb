"""A Spark standalone cluster on the loopback, out of the pyspark package alone: a master, workers of one core each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from lake.errors import UserError
from spark_analytics.runtime.jars import ensure_jars
from spark_analytics.runtime.java import ensure_java, java_home
from tests.support.ports import free_ports
from tests.support.process import Server
from tests.support.servers import require_server
from tests.support.waiting import wait_until

_DEPLOY = "org.apache.spark.deploy"


class SparkCluster(Server):
    """Master and ``workers`` keep their files and logs below ``folder``; each is ended by its own process id.

    Executors find Sojourn on the path of this checkout, if they are not given a ``python`` that finds what it needs.
    """

    def __init__(self, folder: Path, *, workers: int = 2, python: Path | None = None) -> None:
        import pyspark

        try:
            java, self.jars = ensure_java(), ensure_jars()
        except UserError as error:
            require_server(str(error))
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.home = Path(pyspark.__file__).parent
        [self._port] = free_ports(1)
        #: What a driver, a worker and a Python beside them find in their environment.
        self.environ = {
            **os.environ,
            "JAVA_HOME": str(java_home(java)),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "PYSPARK_PYTHON": str(python or sys.executable),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self.environ.pop("PYTHONPATH", None)
        if python is None:
            self.environ["PYTHONPATH"] = str(Path(__file__).parents[2])

    @property
    def master(self) -> str:
        """What ``[analyze] master`` is to be."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        """What master and workers have said."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))

    def start(self) -> None:
        """Start all processes and wait until the master has all workers."""
        place = ("-h", "127.0.0.1", "--webui-port", "0")
        self._start("master", f"{_DEPLOY}.master.Master", *place, "-p", str(self._port))
        for number in range(self._workers):
            self._start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *place, "-c", "1", "-m", "1g", self.master)
        # Each by its own word: to the master a slow one registers more than once.
        logs = [f"worker-{number}" for number in range(self._workers)]
        wait_until(
            lambda: all("Successfully registered with master" in self._log_of(log) for log in logs),
            "all workers",
            seconds=60,
        )

    @property
    def worker_ids(self) -> list[int]:
        """The process ids of the workers, of which executors are children."""
        return [process.pid for process in self._processes[1:]]

    def executors(self) -> list[psutil.Process]:
        """The processes that run tasks now."""
        children = [child for worker in self.worker_ids for child in _children(worker)]
        return [child for child in children if "CoarseGrainedExecutorBackend" in " ".join(_command(child))]

    def executors_at_work(self) -> list[psutil.Process]:
        """Those that have started a Python for their tasks."""
        pythons = {one: [_command(child) for child in _children(one.pid)] for one in self.executors()}
        return [one for one, its in pythons.items() if any("pyspark.daemon" in words for words in its)]

    @property
    def launched(self) -> int:
        """How many executors the master has launched so far."""
        return self._log_of("master").count("Launching executor")

    def kill_an_executor(self, *, at_work: bool = False) -> None:
        """SIGKILL one executor, as its machine would lose it, or one ``at_work``; its worker starts another."""
        found = wait_until(self.executors_at_work if at_work else self.executors, "an executor", seconds=120)
        executor = found[0]
        os.kill(executor.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End workers and master, and whatever executors they leave."""
        left = [child for process in self._processes for child in _children(process.pid)]
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for child in left:
            if child.is_running():  # the same process still, not another with its number
                child.kill()
        self._processes = []

    def _start(self, name: str, *words: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [str(self.home / "bin" / "spark-class"), *words]
            self._processes.append(
                subprocess.Popen(
                    command, env=self.environ, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )

    def _log_of(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
