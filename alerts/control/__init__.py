"""Backpressure: policies decide on what alerts name, actuators apply, a journal records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alerts.control.control import Control, build

__all__ = ["Control", "build"]


def __getattr__(name: str) -> Any:
    # Lazily: settings are read by processes that serve nothing.
    if name in __all__:
        from alerts.control import control

        return getattr(control, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
