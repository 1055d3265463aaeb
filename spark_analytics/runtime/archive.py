"""A memory image of the classes that Spark loads, so that Java need not read and check 15,000 of them at each start.

Java's own feature (class data sharing): ``-XX:ArchiveClassesAtExit`` since Java 13, ``-XX:AOTCache`` since Java 25.
Measured on two shared cores: a session and its first query take 7 s of processor time with it, 11 s without. Java
checks by itself that an archive fits the class path, the jars and its own build, and starts without it otherwise.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_analytics.runtime.cache import cache_root
from spark_analytics.runtime.java import java_version, unwrapped

#: Set to ``off``, neither makes nor uses an archive; set to ``ready``, uses one that is there and makes none.
SWITCH = "SOJOURN_JAVA_ARCHIVE"
#: Set for the one process that makes an archive: the file that it is to write.
TRAINING = "SOJOURN_JAVA_ARCHIVE_TRAINING"
#: Java 25 and newer keep profiles of methods beside the classes.
_AOT_VERSION = 25
#: It is made at the lowest priority: where other work is at hand, the last of it – writing 200 MB – takes minutes.
_MAKING_SECONDS = 900.0


def archive_flags(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Java's options for the process ``command``: to use the archive that fits it, or to write it while training."""
    if environ.get(SWITCH) == "off":
        return []
    modern = _is_modern(command[0])
    # Java has things to say about single classes that it leaves out: nothing that anybody could act on.
    quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
    if target := environ.get(TRAINING):
        return [*quiet, f"-XX:{'AOTCacheOutput' if modern else 'ArchiveClassesAtExit'}={target}"]
    archive = archive_path(command, environ)
    if not archive.is_file():
        return []
    return [*quiet, f"-XX:{'AOTCache' if modern else 'SharedArchiveFile'}={archive}"]


def archive_path(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> Path:
    """Where the archive for ``command`` is kept: one for each Java and class path."""
    class_path = command[command.index("-cp") + 1] if "-cp" in command else ""
    key = [command[0], class_path, *map(_stamp, [unwrapped(Path(command[0])), *_jars(class_path)])]
    return cache_root(environ) / "java" / f"classes-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.jsa"


def make_later(environ: Mapping[str, str] = os.environ) -> None:
    """Make the archive in a process of its own that outlives this one, at the lowest priority; never fails."""
    if environ.get(SWITCH) in ("off", "ready") or TRAINING in environ:
        return
    command = [sys.executable, "-m", "spark_analytics.runtime.training"]
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        subprocess.Popen(command, env=dict(environ), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def wait_until_written(process: subprocess.Popen[bytes], target: Path) -> bool:
    """Whether the Java ``process``, told to end, left an archive at ``target``; ended by force if it takes minutes."""
    deadline = time.monotonic() + _MAKING_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if process.poll() is None:
        process.kill()
        return False
    return target.is_file() and target.stat().st_size > 0


def _is_modern(java: str) -> bool:
    version = java_version(unwrapped(Path(java)))
    return version is not None and version >= _AOT_VERSION


def _jars(class_path: str) -> list[Path]:
    found: list[Path] = []
    for entry in class_path.split(os.pathsep):
        found += sorted(Path(entry).parent.glob("*.jar")) if entry.endswith("*") else [Path(entry)]
    return found


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return f"{path} -"
    return f"{path} {status.st_size} {status.st_mtime_ns}"
