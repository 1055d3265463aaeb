"""What is foretold of a queue, in words: the middle first, then the interval that holds four times in five."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from dashboard.services.overview import Fact
from dashboard.services.say import UNKNOWN, clock, duration
from lake.forecast import Forecast
from lake.foretell import Foretold

#: Of what is not reached.
_NEVER = "not as things go"


def facts(told: Foretold, now: datetime, target: float) -> tuple[Fact, ...]:
    """When the queue is drained, and when who comes waits beyond the ``target``."""
    gone = Fact("Drained", middle(told.drained), interval(told.drained, now) or told.reason)
    if told.breached is None:  # they do already
        return (gone,)
    return gone, Fact(f"Who comes waits beyond {duration(target)}", middle(told.breached), interval(told.breached, now))


def said(told: Foretold) -> str:
    """What the figures rest on."""
    return (
        f"From the last {duration(told.known)} of arrivals and starts: the median, and the 10th to the 90th percentile,"
        " which holds four times in five while traffic goes on as it does."
    )


def middle(forecast: Forecast | None) -> str:
    """``in 4 min``; ``not as things go``."""
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
    late = clock(now + timedelta(seconds=forecast.late), now)
    return f"{_about(forecast.early)} to {_about(forecast.late)}, by {late} UTC at the latest"


def _about(seconds: float) -> str:
    return duration(max(1, round(seconds)))
