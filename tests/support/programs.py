"""Applications of the tests in other languages, or with libraries of their own: made once, into Sojourn's cache.

Each has a lock file with hashes beside it. What was made is kept under the hash of what it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from spark_analytics.runtime.cache import cache_root
from tests.support.servers import program, require_server

_SECONDS = 600


def go_program(source: Path) -> Path:
    """The program of the Go module in ``source``; without Go, or its modules, the test ends."""

    def make(folder: Path) -> None:
        _run([str(program("go")), "build", "-trimpath", "-o", str(folder / "program"), "."], source)

    return _made("go", source, ("*.go", "go.mod", "go.sum"), make) / "program"


def node_folder(source: Path) -> Path:
    """A copy of ``source`` with its packages; without npm, or its packages, the test ends."""

    def make(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        _run([str(program("npm")), "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)

    return _made("node", source, ("*.mjs", "*.json", ".npmrc"), make)


def python_packages(source: Path) -> Path:
    """A folder for PYTHONPATH with what ``requirements.lock`` in ``source`` says; without them the test ends."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input", "install"]
        locked = ["--require-hashes", "--only-binary=:all:", "-r", str(source / "requirements.lock")]
        _run([*command, "--target", str(folder), *locked], source)

    return _made("python", source, ("requirements.lock",), make)


def _made(kind: str, source: Path, patterns: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    files = sorted({file for pattern in patterns for file in source.glob(pattern)})
    content = b"".join(file.name.encode() + b"\0" + file.read_bytes() + b"\0" for file in files)
    root = cache_root(os.environ) / "programs"
    place = root / f"{kind}-{source.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if place.exists():
        return place
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():  # another process of the tests made it
            return place
        folder = Path(tempfile.mkdtemp(dir=root))
        try:
            make(folder)
            folder.rename(place)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return place


def _run(command: list[str], folder: Path) -> None:
    try:
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        require_server(f"{command[0]} took longer than {_SECONDS} s")
    if made.returncode:
        require_server(f"{' '.join(command[:3])}: {made.stderr.strip() or made.stdout.strip()}")
