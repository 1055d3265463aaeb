"""Pages as Streamlit's AppTest runs them, without what it does at each run that has nothing to do with a page."""

from __future__ import annotations

from functools import cache

from streamlit import config
from streamlit.components.v2 import manifest_scanner


def pages_alone() -> None:
    """Each run of an AppTest reads the metadata of all installed packages, 0.3 s long, for whether one brings a
    component of pages. Installed packages stay the same: the first look holds for this process. And each collects
    garbage as a whole, 0.3 s again among all that tests import, which the dashboard as it is served does not."""
    found = manifest_scanner.scan_component_manifests
    if not hasattr(found, "cache_info"):
        manifest_scanner.scan_component_manifests = cache(found)  # type: ignore[assignment]
    config.set_option("runner.postScriptGC", False)
