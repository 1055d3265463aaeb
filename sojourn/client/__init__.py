"""The small library that applications embed: it obeys the limits that Sojourn's controller sets, and fails open.

Two lines::

    limits = sojourn.Limits("http://127.0.0.1:9095")
    limits.acquire("orders", tenant)  # before each send: returns at once, unless this tenant is limited now
"""

from __future__ import annotations

from sojourn.client.bucket import Decision
from sojourn.client.limits import Limits

__all__ = ["Decision", "Limits"]
