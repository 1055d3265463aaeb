"""What the tests of security borrow: webhook receivers."""

from __future__ import annotations

from tests.alerts.conftest import receivers

__all__ = ["receivers"]
