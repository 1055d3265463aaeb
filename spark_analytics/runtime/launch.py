"""Spark's Java process, begun before Python has loaded pyspark: the two start side by side.

pyspark starts Java by two shell scripts and a Java of their own that works out the command line. The answer is the same
each time, so it is asked for once and kept; later starts call Java at once.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from lake.errors import SojournError
from lake.remote import tables_at
from spark_analytics.runtime.archive import TRAINING, archive_flags
from spark_analytics.runtime.cache import cache_root, keep_text
from spark_analytics.runtime.confined import landlock_version
from spark_analytics.runtime.confinement import bare_environment, confined_command
from spark_analytics.runtime.jars import ensure_jars
from spark_analytics.runtime.java import ensure_java
from spark_analytics.runtime.options import cores_of, is_submitted, prepare_environment, session_settings
from spark_analytics.runtime.store import store_environment, store_jars, store_port

log = logging.getLogger(__name__)

#: The settings that Java itself must be started with; all others reach Spark later.
_OF_JAVA = ("spark.driver.memory", "spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
#: Who configures Spark by these gets Spark's own way to start.
_FOREIGN = ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_DRIVER_MEMORY", "SPARK_MEM", "PYSPARK_SUBMIT_ARGS")
_MAIN = "org.apache.spark.deploy.SparkSubmit"
#: Java is waited for as long as it lives, within reason: a busy machine needs minutes to start it. After some seconds
#: we say what is waited for.
_PATIENCE_SECONDS, _TOLD_SECONDS = 900.0, 20.0
#: What Spark's own launcher may take for its answer.
_ANSWER_SECONDS = 60.0
_LOOK_SECONDS = 0.01
MEMORY = "2g"


class Launch:
    """One Java process on its way up. It ends by itself when this process does, or when it is closed.

    With ``lake`` it is one that runs others' SQL: its environment is bare, its temporary files go to ``folder``, and
    with ``confined`` it sees nothing but the two.
    """

    def __init__(
        self, command: list[str], environ: Mapping[str, str], *, lake: Path | None = None, confined: bool = False
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sojourn-java-"))
        self.confined = lake is not None and confined
        tables = None if lake is None else tables_at(lake)
        self._told = self.folder / "gateway" / "port"
        self._told.parent.mkdir()
        self._reached = False
        flags = archive_flags(command, environ)
        self.from_archive = bool(flags)
        if lake is not None:
            environ = bare_environment(environ, self.folder) | (store_environment(tables) if tables else {})
            flags += [f"-Djava.io.tmpdir={self.folder}", "-XX:-UsePerfData"]  # whose file would be elsewhere
        command = [command[0], *flags, *command[1:]]
        self.process = subprocess.Popen(
            confined_command(command, lake, self.folder, None if tables is None else store_port(tables))
            if lake is not None and confined
            else command,
            stdin=subprocess.PIPE,  # Java ends when this pipe does
            env={**environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told)},
            process_group=0,  # Ctrl-C is for us: Java is told what to cancel
        )
        atexit.register(self.close)

    def wait(self, stop: threading.Event | None = None) -> bool:
        """Wait until the process can be reached, or has ended; False where ``stop`` was set before: it is closed."""
        began, told = time.monotonic(), False
        while not self._told.is_file() and self.process.poll() is None:
            waited = time.monotonic() - began
            if waited > _PATIENCE_SECONDS:
                break
            if waited > _TOLD_SECONDS and not told:
                told = True
                log.info("waiting for Spark's Java to start: that takes long where the processor has other work")
            if stop is None:
                time.sleep(_LOOK_SECONDS)
            elif stop.wait(_LOOK_SECONDS):
                self.close()
                return False
        return True

    def address(self) -> tuple[int, str]:
        """Port and secret at which the process listens, once it does; SojournError if it ends instead."""
        try:
            self.wait()
            if not self._told.is_file():
                ended = self.process.poll() is not None
                how = "ended before it could be reached" if ended else f"was not there after {_PATIENCE_SECONDS:g} s"
                self.close()
                raise SojournError(f"its Java process {how}")
            content = self._told.read_bytes()
            self._reached = True
        finally:
            shutil.rmtree(self._told.parent, ignore_errors=True)
        port, length = struct.unpack_from("!ii", content)
        return port, content[8 : 8 + length].decode()

    def close(self) -> None:
        """Let the process end; it cleans up behind itself, which nobody has to wait for."""
        if not self._reached:  # nobody ever spoke to it; without its folder it would neither be reached nor end
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def begin(memory: str = MEMORY, *, lake: Path | None = None, confined: bool | None = None) -> Launch | None:
    """Begin Java for a quick local session, to be handed to ``build_session`` later. Imports nothing of Spark.

    With ``lake``, for others' SQL over it: ``confined`` where the kernel can (the default), or as is said. None where
    only Spark's own scripts can start it. Raises UserError where jars or Java are missing.
    """
    command = quick_command(memory, () if lake is None else store_jars(tables_at(lake)))
    if confined is None:
        confined = landlock_version() > 0
    if TRAINING in os.environ:  # it writes the archive, of our own statements
        lake = None
    return None if command is None else Launch(command, os.environ, lake=lake, confined=confined)


def begin_session(
    master: str, conf: Mapping[str, str], jars: Sequence[Path] = (), *, quick_start: bool = False
) -> Launch | None:
    """Begin Java for the session that :func:`spark_analytics.runtime.session.build_session` will make of the same.

    None where it would not start one itself: on a cluster, under `spark-submit`, or by Spark's own scripts alone.
    Raises UserError where jars or Java are missing.
    """
    if cores_of(master) is None or is_submitted():
        return None
    java = ensure_java()
    settings = session_settings(master, java, [*ensure_jars(), *jars], quick_start=quick_start) | dict(conf)
    prepare_environment(java, master)
    command = command_of(settings)
    return None if command is None else Launch(command, os.environ)


def quick_command(memory: str = MEMORY, jars: Sequence[Path] = ()) -> list[str] | None:
    """The command line of :func:`begin`'s Java, with ``jars`` beside those that every session needs, without what
    concerns the archive of its classes."""
    java = ensure_java()
    settings = session_settings("local[2]", java, [*ensure_jars(), *jars], quick_start=True)
    prepare_environment(java)
    return command_of(settings | {"spark.driver.memory": memory})


def command_of(settings: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> list[str] | None:
    """The command line of a local Spark's Java with ``settings``; None where only Spark's own scripts can start it.

    ``environ`` is what :func:`spark_analytics.runtime.options.prepare_environment` made of it.
    """
    home = Path(environ["SPARK_HOME"])
    if any(name in environ for name in _FOREIGN) or (home / "conf").exists():
        return None
    return _command(home, {name: settings[name] for name in _OF_JAVA if name in settings}, environ)


def _command(home: Path, settings: Mapping[str, str], environ: Mapping[str, str]) -> list[str] | None:
    """The command line that Spark's launcher makes of ``settings``, kept from the first time on."""
    question = [f"{environ['JAVA_HOME']}/bin/java", str(home), *(f"{key}={settings[key]}" for key in sorted(settings))]
    place = cache_root(environ) / "java" / f"launch-{hashlib.sha256(json.dumps(question).encode()).hexdigest()[:16]}"
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))
        if isinstance(kept, list) and kept and all(isinstance(word, str) for word in kept):
            return kept
    except (OSError, ValueError):
        pass
    command = _ask_launcher(question[0], home, settings, environ)
    if command is not None:
        keep_text(place, json.dumps(command))
    return command


def _ask_launcher(java: str, home: Path, settings: Mapping[str, str], environ: Mapping[str, str]) -> list[str] | None:
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    question = [java, "-Xmx128m", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", _MAIN, *words]
    try:
        answer = subprocess.run(
            [*question, "pyspark-shell"],
            capture_output=True,
            env={**environ, "SPARK_SCALA_VERSION": "2.13"},
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    words = [word.decode() for word in answer.stdout.partition(b"\0\n")[2].split(b"\0") if word]
    return words if _MAIN in words else None
