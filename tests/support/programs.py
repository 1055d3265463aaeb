"""Applications of the tests in other languages, or with libraries of their own: made once, into Sojourn's cache.

Each has a lock file with hashes beside it. What was made is kept under the hash of what it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from spark_analytics.runtime.cache import cache_root
from tests.support.servers import program, require_server

_SECONDS = 600
#: What stands in for the machine's own Go and Node where they are older than this.
_TOOLCHAINS = Path(__file__).with_name("toolchains")
_LEAST_GO, _LEAST_NODE = (1, 26), (20,)
_ARCHITECTURES = {"x86_64": ("amd64", "x64"), "aarch64": ("arm64", "arm64")}  # as Go and as Node call them


@cache
def node() -> Path:
    """A Node that all libraries of the tests run on; without npm, where it has to be fetched, the test ends."""
    own = shutil.which("node")
    if own is not None and _version([own, "--version"]) >= _LEAST_NODE:
        return Path(own)
    _, named = _ARCHITECTURES.get(platform.machine(), ("", platform.machine()))
    return node_folder(_TOOLCHAINS / "node") / "node_modules" / f"node-linux-{named}" / "bin" / "node"


@cache
def _go() -> tuple[Path, Mapping[str, str]]:
    """A Go that builds all modules of the tests, and the environment that it runs in."""
    own = program("go")
    if _version([str(own), "version"]) >= _LEAST_GO:
        return own, {}
    root = fetched_go(own) / "go"
    return root / "bin" / "go", {"GOROOT": str(root), "GOTOOLCHAIN": "local"}


def fetched_go(old: Path) -> Path:
    """A folder with the pinned ``go``, by the means of an ``old`` one; without it the test ends."""
    pinned = json.loads((_TOOLCHAINS / "go" / "toolchain.json").read_text(encoding="utf-8"))
    named, _ = _ARCHITECTURES.get(platform.machine(), (platform.machine(), ""))

    def make(folder: Path) -> None:
        modules = {"GOMODCACHE": str(folder / "modules"), "GOTOOLCHAIN": "local", "GOFLAGS": "-modcacherw"}
        module = f"golang.org/toolchain@{pinned['version']}.linux-{named}"
        told = json.loads(_run([str(old), "mod", "download", "-json", module], _TOOLCHAINS / "go", modules))
        if told["Sum"] != pinned["sums"].get(f"linux-{named}"):
            require_server(f"{module} is not what was pinned: {told['Sum']}")
        shutil.move(told["Dir"], folder / "go")
        for each in (*(folder / "go" / "bin").iterdir(), *(folder / "go" / "pkg" / "tool").rglob("*")):
            each.chmod(0o755)  # modules keep no such bits
        shutil.rmtree(folder / "modules")

    return _made("toolchain", _TOOLCHAINS / "go", ("*",), make)


def _version(command: list[str]) -> tuple[int, ...]:
    """The first number with dots that ``command`` tells; () where it tells none."""
    told = subprocess.run(command, capture_output=True, text=True, cwd=_TOOLCHAINS)
    found = re.search(r"(\d+(?:\.\d+)+)", told.stdout)
    return tuple(map(int, found[1].split("."))) if found else ()


def go_program(source: Path) -> Path:
    """The program of the Go module in ``source``; without Go, or its modules, the test ends."""

    go, environment = _go()

    def make(folder: Path) -> None:
        _run([str(go), "build", "-trimpath", "-o", str(folder / "program"), "."], source, environment)

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


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What the command wrote; the test ends where it fails."""
    whole = {**os.environ, **(environment or {})}
    try:
        made = subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        require_server(f"{command[0]} took longer than {_SECONDS} s")
    if made.returncode:
        require_server(f"{' '.join(command[:3])}: {made.stderr.strip() or made.stdout.strip()}")
    return made.stdout
