"""What Spark and its Java are told: settings for small, frequent batches on one machine. Loads nothing of Spark."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lake.errors import UserError
from spark_analytics.runtime.cache import cache_root, keep_text
from spark_analytics.runtime.java import Java, java_home

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")

#: Files of a disk without Hadoop's own checksums beside them: ours and deltalake's writes would not renew those, and
#: nobody would ever remove them.
_PLAIN_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"
#: The same, without forking a chmod for each file that is made: 33 ms against 2 for a line of the write-ahead log.
_QUICK_FILES = "com.globalmentor.apache.hadoop.fs.NakedLocalFileSystem"
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} spark %p %c{1}: %m%n%ex
""" + "".join(
    # Warnings about what we chose on purpose, or that nobody can act on.
    f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = error\n"
    for number, name in enumerate(
        (
            "org.apache.hadoop.util.NativeCodeLoader",
            "org.apache.spark.util.Utils",
            "org.apache.spark.util.SparkStringUtils",
            "org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream",
        )
    )
)

#: Measured on two cores, session and first query: 23 s of processor time with Java's own thresholds, 19 s with these
#: (the optimising compiler is kept for loops over rows, off the start-up code), 13 s without it at all.
_THROUGHPUT = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_QUICK_START = ("-XX:TieredStopAtLevel=1",)


def is_submitted() -> bool:
    """Whether ``spark-submit`` started this process, with a Java that waits for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def cores_of(master: str) -> int | None:
    """How many tasks a local ``master`` runs at once; None for a cluster, which alone knows."""
    found = _LOCAL.fullmatch(master)
    if not found:
        return None
    count = found.group(1)
    return (os.cpu_count() or 1) if count == "*" else int(count or 1)


def cluster_settings() -> dict[str, str]:
    """Spark's settings for any master; each line that is not Delta's own requirement says what it is for."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",  # no metastore_db, no derby.log in the user's folder
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",  # else ${env:NAME} in a statement is replaced by the value
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.databricks.delta.snapshotPartitions": "1",  # 50 by default: tasks that cost more than the state
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # we keep no state that an empty batch could close
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "spark.hadoop.fs.file.impl": _PLAIN_FILES,
    }


def session_settings(master: str, java: Java, jars: Sequence[Path], *, quick_start: bool) -> dict[str, str]:
    """Spark's settings for ``master``, whose Java process we start."""
    settings = cluster_settings() | {
        "spark.driver.extraJavaOptions": _java_options(java, quick_start=quick_start),
        "spark.driver.memory": "2g",
    }
    cores = cores_of(master)
    if cores is None:
        return settings | {"spark.jars": ",".join(map(str, jars))}
    return settings | {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # On the class path, not in spark.jars, which copies them at each start and comes too late for a file system.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.hadoop.fs.file.impl": _QUICK_FILES,
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        "spark.sql.warehouse.dir": _scratch_folder(),
    }


def _java_options(java: Java, *, quick_start: bool) -> str:
    log_settings = keep_text(cache_root() / "log4j2.properties", _LOG4J)
    flags = [
        # Micro-batches on few cores: the serial collector starts soonest and takes a third less memory than G1.
        "-XX:+UseSerialGC",
        "-Duser.timezone=UTC",
        f'-Dlog4j2.configurationFile="{log_settings.as_uri()}"',
        *(_QUICK_START if quick_start else _THROUGHPUT),
    ]
    if java.version >= 24:  # Netty and Arrow reach for native memory; newer Javas warn about it at each start.
        flags += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    return " ".join(flags)


def prepare_environment(java: Java, master: str = "local") -> None:
    """What Spark's launcher reads from the environment, set for this process and its children.

    On a cluster, the address at which workers reach this process, and the Python that they run, stay as they were set.
    """
    package = find_spec("pyspark")
    if package is None or not package.submodule_search_locations:
        raise UserError("pyspark is not installed", "pip install 'sojourn[analytics]'")
    os.environ |= {
        "JAVA_HOME": str(java_home(java)),
        # Another Spark on the machine would not fit this pyspark, nor the Delta that is pinned to it.
        "SPARK_HOME": package.submodule_search_locations[0],
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if cores_of(master) is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        # Else Spark looks up the host's name, and workers start whichever python3 is first on the PATH.
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def _scratch_folder() -> str:
    """A folder for the warehouse that nobody should find in their working folder; removed with the process."""
    folder = tempfile.mkdtemp(prefix="sojourn-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
