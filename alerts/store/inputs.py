"""What a rule's row said beside its labels and its value, as texts that are kept: why an alert changed, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from itertools import islice

from alerts.notify.payload import iso

#: Columns of one row that are kept, and characters of each.
MOST_INPUTS, LONGEST_INPUT = 24, 200


def told(inputs: Mapping[str, object]) -> dict[str, str | None]:
    """``inputs`` as texts, bounded; None stays None: the rule asked, and nobody knew."""
    return {name: _text(value) for name, value in islice(inputs.items(), MOST_INPUTS)}


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return iso(value)
    return (value.isoformat() if isinstance(value, date) else str(value))[:LONGEST_INPUT]
