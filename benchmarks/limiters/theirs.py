"""Limiters of others before the same servers: small programs in their languages that read the trace, made once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.limiters.world import MOST, SERVERS, Array
from lake.errors import SojournError
from spark_analytics.runtime.cache import cache_root
from spark_analytics.runtime.coordinates import read_jars
from spark_analytics.runtime.jars import ensure_declared
from spark_analytics.runtime.java import ensure_java
from tests.support.servers import program

_HERE = Path(__file__).parent


def netflix(limit: str, requests: Array, folder: Path) -> Array:
    """What ``limit`` of Netflix concurrency-limits made of ``requests``, as :func:`~benchmarks.limiters.world.run`."""
    jars = ensure_declared(read_jars(_HERE / "limiters.toml"), cache_root(os.environ) / "limiters")
    path, classes = os.pathsep.join(map(str, jars)), folder / "classes"
    if not classes.exists():
        _call([str(program("javac")), "-cp", path, "-d", str(classes), str(_HERE / "Limiters.java")])
    came, became = _files(folder, requests)
    java = str(ensure_java().executable)
    command = [java, "-cp", f"{classes}{os.pathsep}{path}", "Limiters", limit, str(SERVERS), str(MOST)]
    _call([*command, str(came), str(became)])
    return _read(became)


def failsafe(requests: Array, folder: Path) -> Array:
    """What failsafe-go's adaptive limiter made of ``requests``, on the clock of ``testing/synctest``."""
    came, became = _files(folder, requests)
    told = {"TRACE": str(came), "OUTCOME": str(became), "SERVERS": str(SERVERS), "MOST": str(MOST)}
    command = [str(program("go")), "test", "-count=1", "-timeout=30m", "."]
    _call(command, os.environ | told, _HERE / "go")
    return _read(became)


def _files(folder: Path, requests: Array) -> tuple[Path, Path]:
    came = folder / "trace"
    came.write_bytes(requests.astype("<f8").tobytes())
    return came, folder / "outcome"


def _read(path: Path) -> Array:
    return np.fromfile(path, "<f8").reshape(-1, 2)


def _call(command: list[str], environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SojournError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-500:]}")
