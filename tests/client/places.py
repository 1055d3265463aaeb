"""Where clients are pointed at."""

from __future__ import annotations

#: Nobody listens there.
NOWHERE = "http://127.0.0.1:1"
