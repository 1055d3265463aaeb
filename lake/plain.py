"""Values as programs read them: what JSON has no type for, as text."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """``value`` for JSON, the ``default`` of :func:`json.dumps`: instants in ISO 8601, bytes in base64, decimals as
    numbers, anything else as it prints."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else str(value)
