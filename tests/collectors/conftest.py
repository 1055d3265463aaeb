"""What tests of collectors found out goes into the table of brokers."""

from __future__ import annotations

from tests.support.facts import note

__all__ = ["note"]
