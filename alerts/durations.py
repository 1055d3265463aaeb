"""Durations as Prometheus writes them: ``30s``, ``5m``, ``1h30m``, ``250ms``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_PARTS = (("y", 365 * 86400), ("w", 7 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1), ("ms", 0.001))
_PATTERN = re.compile("".join(rf"(?:(?P<{unit}>\d+){unit})?" for unit, _ in _PARTS), re.ASCII)
#: Beyond this, instants cannot be reckoned with.
LONGEST = timedelta(days=100 * 365)


def parse_duration(value: object) -> timedelta:
    """The duration that ``value`` names; a bare number counts seconds. ValueError for anything else."""
    try:
        duration = _parsed(value)
    except OverflowError:
        duration = timedelta.max
    if duration < timedelta(0):
        raise ValueError(f"{value!r} is negative: a duration is not")
    if duration > LONGEST:
        raise ValueError("a duration is at most 100 years")
    return duration


def _parsed(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if isinstance(value, str) and value.strip() == "0":
        return timedelta(0)
    if isinstance(value, str) and value.strip() and (match := _PATTERN.fullmatch(value.strip())):
        return timedelta(seconds=sum(int(match[unit] or 0) * seconds for unit, seconds in _PARTS))
    raise ValueError(f"{value!r} is not a duration: write it as 30s, 5m or 1h30m")


def format_duration(duration: timedelta) -> str:
    """``duration`` in the units of :func:`parse_duration`, largest first."""
    left = round(duration.total_seconds() * 1000)
    text = ""
    for unit, seconds in _PARTS[2:]:
        count, left = divmod(left, round(seconds * 1000))
        text += f"{count}{unit}" if count else ""
    return text or "0s"


#: A pydantic field that reads and writes durations in this notation.
Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
