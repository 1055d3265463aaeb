"""Pages as Streamlit's AppTest runs them, without what it does at each run that has nothing to do with a page."""

from __future__ import annotations

from functools import cache

from streamlit.components.v2 import manifest_scanner


def look_for_components_once() -> None:
    """Each run of an AppTest reads the metadata of all installed packages, 0.3 s long, for whether one brings a
    component of pages. Installed packages stay the same: the first look holds for this process."""
    found = manifest_scanner.scan_component_manifests
    if not hasattr(found, "cache_info"):
        manifest_scanner.scan_component_manifests = cache(found)  # type: ignore[assignment]
