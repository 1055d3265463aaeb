"""What a test does without its server: skip on a person's machine, fail in CI."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import NoReturn

import pytest


def in_ci() -> bool:
    """Whether this run must not pass by skipping."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def require_server(reason: str) -> NoReturn:
    """End the test that lacks a real server (or browser): skipped here, failed in CI."""
    if in_ci():
        pytest.fail(f"CI must have it: {reason}", pytrace=False)
    pytest.skip(reason)


def program(*names: str) -> Path:
    """The first of ``names`` in this environment's scripts or on the PATH; else the test ends."""
    scripts = sysconfig.get_path("scripts")
    for name in names:
        if found := shutil.which(name, path=scripts) or shutil.which(name):
            return Path(found)
    require_server(f"there is no {' or '.join(names)}")
