"""Pages as Streamlit's AppTest runs them, without what it does at each run that has nothing to do with a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import app_test


def look_for_components_once() -> None:
    """Each run of an AppTest reads the metadata of all installed packages, 0.3 s long, for whether one brings a
    component of pages. Installed packages stay the same: the first look holds for this process."""
    found = manifest_scanner.scan_component_manifests
    if not hasattr(found, "cache_info"):
        manifest_scanner.scan_component_manifests = cache(found)  # type: ignore[assignment]


@contextmanager
def scripts_in(folder: Path) -> Iterator[None]:
    """Have AppTest write the scripts that it runs to ``folder``.

    It makes one folder when it is loaded, names a script by its text and reads it at each run: of processes that were
    forked since, each would write what the others read, and the first to end would remove it. A page whose script is
    being written, or gone, is empty, without a word of error.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_test, "TMP_DIR", SimpleNamespace(name=str(folder)))
        yield
