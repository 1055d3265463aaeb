"""What is foretold of a queue, in words: the middle first, then the interval that holds four times in five."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from dashboard.services.overview import Fact
from dashboard.services.say import UNKNOWN, duration, instant
from lake.forecast import Forecast
from lake.foretell import Foretold

#: Of what is not reached.
_NEVER = "not at the rates of the last minutes"


def facts(told: Foretold, now: datetime, target: float) -> tuple[Fact, ...]:
    """When the queue is drained, when who comes waits beyond the ``target``, when retention deletes what is unread.

    A target that is passed already is not foretold, nor a retention that the queue has not.
    """
    named = (
        (f"Who comes waits beyond {duration(target)}", told.breached),
        ("Retention deletes unread messages", told.retention),
    )
    gone = Fact("Drained", middle(told.drained), interval(told.drained, now) or told.reason)
    return gone, *(
        Fact(label, middle(forecast), interval(forecast, now)) for label, forecast in named if forecast is not None
    )


def in_short(told: Foretold, now: datetime, target: float) -> str:
    """The same in one line: ``Drained in 4 min (3 min to 6 min, by 03:12 UTC at the latest); who comes waits …``.

    Empty where nothing is foretold.
    """
    if told.drained is None and told.breached is None and told.retention is None:
        return ""
    parts = []
    for place, fact in enumerate(facts(told, now, target)):
        label = fact.label if place == 0 else f"{fact.label[:1].lower()}{fact.label[1:]}"
        value = f": {fact.value}" if fact.value in (_NEVER, UNKNOWN) else f" {fact.value}"
        parts.append(f"{label}{value}" + (f" ({fact.note})" if fact.note else ""))
    return "; ".join(parts)


def as_json(told: Foretold, target: float) -> dict[str, Any]:
    """For programs: percentiles in seconds from the data time on; null is never as things go, or unknown."""
    return {
        "reason": told.reason or None,
        "known_seconds": told.known,
        "target_seconds": target,
        "drained_in_seconds": _percentiles(told.drained),
        "late_in_seconds": _percentiles(told.breached),
        "retention_in_seconds": _percentiles(told.retention),
    }


def _percentiles(forecast: Forecast | None) -> dict[str, float | None] | None:
    """p10, p50 and p90; null is never, as things go."""
    if forecast is None:
        return None
    named = {"p10": forecast.early, "p50": forecast.middle, "p90": forecast.late}
    return {name: None if math.isinf(value) else round(value, 1) for name, value in named.items()}


def said(told: Foretold) -> str:
    """What the figures rest on."""
    return (
        f"From the last {duration(told.known)} of arrivals and starts: the median, and the 10th to the 90th percentile,"
        " which holds four times in five while traffic goes on as it does."
    )


def middle(forecast: Forecast | None) -> str:
    """``in 4 min``; ``not at the rates of the last minutes``."""
    if forecast is None:
        return UNKNOWN
    return _NEVER if math.isinf(forecast.middle) else "now" if forecast.middle < 1 else f"in {_about(forecast.middle)}"


def interval(forecast: Forecast | None, now: datetime) -> str:
    """``3 min to 6 min, by 15:42 UTC at the latest``; the part that may happen where the middle never comes."""
    if forecast is None:
        return ""
    if math.isinf(forecast.early):
        return "nor is it likely"
    if math.isinf(forecast.late):
        return f"{_about(forecast.early)} at the earliest, perhaps never"
    late = instant(now + timedelta(seconds=forecast.late), now)
    return f"{_about(forecast.early)} to {_about(forecast.late)}, by {late} at the latest"


def _about(seconds: float) -> str:
    return duration(max(1, round(seconds)))
