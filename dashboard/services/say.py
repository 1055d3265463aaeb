"""Numbers, durations and instants as people read them; an unknown value is always the word, never a zero."""

from __future__ import annotations

import math
from datetime import datetime

UNKNOWN = "unknown"


def count(value: float | None) -> str:
    """``1240`` → ``1,240``."""
    return UNKNOWN if value is None or math.isnan(value) else f"{round(value):,}"


def messages(value: float | None) -> str:
    """``1`` → ``1 message``; ``1240`` → ``1,240 messages``."""
    if value is None:
        return UNKNOWN
    return f"{count(value)} message{'' if round(value) == 1 else 's'}"


def rate(value: float | None) -> str:
    """Messages a second, with three digits at most: ``12.34`` → ``12.3/s``."""
    return UNKNOWN if value is None or math.isnan(value) else f"{_short(value)}/s"


def percent(ratio: float | None) -> str:
    """``0.613`` → ``61 %``; what is small but not nothing stays visible: ``< 1 %``."""
    if ratio is None or math.isnan(ratio):
        return UNKNOWN
    return "< 1 %" if 0 < ratio < 0.01 else f"{ratio * 100:,.0f} %"


def decimal(value: float | None) -> str:
    """A bare number with three digits at most: a concurrency, an alert's value."""
    return UNKNOWN if value is None or math.isnan(value) else _short(value)


def duration(seconds: float | None) -> str:
    """``0.042`` → ``42 ms``, ``42`` → ``42 s``, ``185`` → ``3 min 5 s``, ``7620`` → ``2 h 7 min``."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "< 1 ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def clock(at: datetime | None, now: datetime, *, seconds: bool = False) -> str:
    """The time of day in the time zone of ``now``, with the date in front where it is not today's."""
    if at is None:
        return UNKNOWN
    at = at.astimezone(now.tzinfo)
    text = at.strftime("%H:%M:%S" if seconds else "%H:%M")
    return text if at.date() == now.date() else f"{at.day} {at.strftime('%b')} {text}"


def instant(at: datetime | None, now: datetime, *, seconds: bool = False) -> str:
    """The same with its time zone: ``03:12 UTC``, ``1 Mar 04:12 CET``."""
    return UNKNOWN if at is None else f"{clock(at, now, seconds=seconds)} {now.tzname()}"


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago: ``2 min 10 s ago``; a little future (clocks differ) is ``just now``."""
    if at is None:
        return UNKNOWN
    seconds = (now - at).total_seconds()
    return "just now" if seconds < 1 else f"{duration(max(1, round(seconds)))} ago"


def age(seconds: float | None) -> str:
    """An age in whole words; null, where there is no message to be old, is ``none waiting``."""
    return "none waiting" if seconds is None else duration(seconds)


def listing(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def _short(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude >= 9.95:
        return f"{value:.1f}".removesuffix(".0")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "< 0.01" if text in ("0", "-0") and value > 0 else text
