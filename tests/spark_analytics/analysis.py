"""An analysis in a process of its own, as users run it: started, watched, ended or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lake.store import Lake
from spark_analytics.job import Job
from spark_analytics.settings import AnalyzeSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]

_PROGRAM = """
import logging, signal, sys, threading
from pathlib import Path
from lake.errors import SojournError
from spark_analytics.run import run
from spark_analytics.settings import AnalyzeSettings

logging.basicConfig(level="INFO")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
settings = AnalyzeSettings(quick_start=True, driver_memory="1g", maintain_every=5, max_bytes_per_trigger=1 << 16)
if "unmaintained" in sys.argv:
    settings = settings.model_copy(update={"maintain_every": 0})
if "newest-first" in sys.argv:
    settings = settings.model_copy(update={"newest_first_after_bytes": 1})
try:
    run(settings, Path(sys.argv[1]), stop, once="once" in sys.argv, rebuild="rebuild" in sys.argv)
except SojournError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


class Analysis:
    """One process that analyses a lake; what it says goes to ``log``."""

    def __init__(self, lake: Lake, *words: str) -> None:
        self._log = lake.root.parent / "analysis.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(lake.root), *words],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """What all analyses of this lake have said."""
        return self._log.read_text(errors="replace")

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as the machine or its memory guard would; Java follows by itself when its parent is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def terminate(self) -> tuple[int, float]:
        """SIGTERM; the exit code and the seconds it took."""
        started = time.monotonic()
        self._process.terminate()
        code = self._process.wait(timeout=60)
        return code, time.monotonic() - started

    def wait(self, timeout: float = 170) -> int:
        """The exit code, when it has ended by itself."""
        return self._process.wait(timeout=timeout)


def analyse_once(lake: Lake, *words: str) -> str:
    """Run ``analyze --once`` to its end; its log."""
    analysis = Analysis(lake, "once", *words)
    code = analysis.wait()
    assert code == 0, analysis.log
    return analysis.log


def analyse(spark: SparkSession, lake: Lake, driver_bytes: int, **more: int) -> None:
    """The whole job, once, in the tests' session."""
    settings = AnalyzeSettings(driver_bytes=driver_bytes, maintain_every=0, **more)
    job = Job(spark, settings, lake.root, once=True, on_batch=lambda rows: None)
    job.start()
    while job.running():
        time.sleep(0.02)
    job.stop()
