"""The real promtool: Debian's package, unpacked into a cache where it is not installed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.servers import require_server

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sojourn-tests" / "prometheus"
_PATIENCE = 300


def promtool() -> Path:
    """The program; else the test ends: skipped on a person's machine, failed in CI."""
    unpacked = _CACHE / "usr" / "bin" / "promtool"
    if found := shutil.which("promtool"):
        return Path(found)
    if not unpacked.exists():
        _fetch()
    if not unpacked.exists():
        require_server("there is no promtool: apt-get install prometheus")
    return unpacked


def _fetch() -> None:
    """Debian's package without installing it: that would start a server."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (_CACHE / "usr").exists():
            return
        quietly = {"cwd": _CACHE, "check": False, "capture_output": True, "timeout": _PATIENCE}
        subprocess.run(["apt-get", "download", "-q", "prometheus"], **quietly)  # type: ignore[call-overload]
        for package in _CACHE.glob("prometheus_*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(_CACHE / "new")], **quietly)  # type: ignore[call-overload]
            package.unlink()
        if (_CACHE / "new" / "usr").exists():
            (_CACHE / "new" / "usr").rename(_CACHE / "usr")
