"""Programs of Debian's packages, unpacked into a cache where they are not installed: installing would start servers."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.servers import require_server

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sojourn-tests"
_PATIENCE = 300


def debian_program(package: str, *names: str) -> Path:
    """The first of ``names`` on the PATH or in ``package``; else the test ends: skipped here, failed in CI."""
    folder = _CACHE / package
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    if not (folder / "usr").exists():
        _fetch(package, folder)
    for name in names:
        if (unpacked := folder / "usr" / "bin" / name).exists():
            return unpacked
    require_server(f"there is no {names[0]}: apt-get install {package}")


def _fetch(package: str, folder: Path) -> None:
    """The package without its dependencies: what is asked for here needs none."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "usr").exists():
            return
        quietly = {"cwd": folder, "check": False, "capture_output": True, "timeout": _PATIENCE}
        subprocess.run(["apt-get", "download", "-q", package], **quietly)  # type: ignore[call-overload]
        for archive in folder.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(folder / "new")], **quietly)  # type: ignore[call-overload]
            archive.unlink()
        if (folder / "new" / "usr").exists():
            (folder / "new" / "usr").rename(folder / "usr")
