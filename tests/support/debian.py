"""Programs of Debian's packages, which `scripts/servers` installs where it may."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.servers import require_server


def debian_program(package: str, *names: str) -> Path:
    """The first of ``names`` on the PATH, which ``package`` has; else the test ends: skipped here, failed in CI."""
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    require_server(f"there is no {names[0]}: apt-get install {package}")
