"""When a level will be reached – a backlog gone, a wait beyond its target – as an interval, from how it moved lately.

What came and went in recent bins of equal length is taken for a process with drift and variance. After ``h`` seconds
the level has moved by ``drift × h``. Its variance is ``noise × h`` of counts, ``noise ÷ known × h²`` as the drift is
an estimate from ``known`` seconds, and ``(wander × flow)² × h²`` because traffic does not stay as it is. The level is
reached by ``h`` with the probability that a normal variable of that mean and variance is there: the first passage of a
Brownian motion with drift, without its reflection, which matters where the drift is small beside the noise, and there
the interval is open anyway. Quantiles of that distribution are the answer; one that is never reached is infinite.

Sources: D. R. Cox, H. D. Miller, The Theory of Stochastic Processes, 1965, 5.7 (first passage); W. K. Newey,
K. D. West, Econometrica 55, 1987 (a variance that holds for bins that depend on one another).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

#: The quantiles of a forecast: the interval between the outer ones is meant to hold four times in five.
QUANTILES = (0.1, 0.5, 0.9)
#: How much rates wander, as a part of what flows, while a queue drains and while it grows: what floods a queue ends
#: sooner than what drains it. Set so that over the lab's scenarios intervals hold as often as they say
#: (docs/forecasts.md), on other seeds than those that they are tested with.
WANDER_DRAINING, WANDER_GROWING = 0.03, 0.09
#: With fewer bins nothing is foretold.
FEWEST = 12
#: Beyond so many seconds (ten days) it is called never.
FARTHEST = 864_000.0
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Forecast:
    """In how many seconds a level is reached: 10th, 50th and 90th percentile; infinite is never, as things go.

    ``probability`` is that of being reached at all within :data:`FARTHEST`.
    """

    early: float
    middle: float
    late: float
    probability: float


def drained(ready: float, came: Sequence[float], went: Sequence[float], seconds: float) -> Forecast | None:
    """When the ``ready`` messages that wait are gone.

    ``came`` and ``went``: messages in each recent bin of ``seconds``, the oldest first, of a time in which some
    waited throughout: where nothing waits, what goes says nothing about what could. None where too little is known.
    """
    return reached(ready, came, went, seconds, WANDER_DRAINING)


def breached(
    ready: float, target_seconds: float, came: Sequence[float], went: Sequence[float], seconds: float
) -> Forecast | None:
    """When who comes will wait longer than ``target_seconds``, first in, first out.

    Who comes waits for what is ready, at the pace at which it goes: that is at ``target × pace`` messages.
    None where too little is known, nothing goes, or the target is passed already.
    """
    pace = math.fsum(went) / (len(went) * seconds) if went else 0.0
    room = target_seconds * pace - ready
    return reached(room, went, came, seconds, WANDER_GROWING) if pace > 0 and room > 0 else None


def overtaken(margin: float, came: Sequence[float], went: Sequence[float], seconds: float) -> Forecast | None:
    """When the broker's retention deletes the oldest message that nobody has read, ``margin`` messages from it now.

    What comes pushes the end of what is kept towards it, what goes takes the oldest unread away from it, first in,
    first out: so it is where retention is by number or by size, and where it is by time while as many come as came
    when what it deletes did. None where too little is known.
    """
    return reached(margin, went, came, seconds, WANDER_GROWING)


def reached(
    distance: float, away: Sequence[float], towards: Sequence[float], seconds: float, wander: float
) -> Forecast | None:
    """When ``distance`` is 0, which shrinks by ``towards`` and grows by ``away`` in each bin of ``seconds``.

    ``wander`` is how far the rates stray, as a part of the larger flow. None where too little is known.
    """
    if len(away) != len(towards) or len(away) < FEWEST or distance < 0:
        return None
    if distance == 0:
        return Forecast(0.0, 0.0, 0.0, 1.0)
    known = len(away) * seconds
    steps = [to - back for to, back in zip(towards, away, strict=True)]
    drift = math.fsum(steps) / known
    noise = _long_run_variance(steps) / seconds
    flow = max(math.fsum(away), math.fsum(towards)) / known
    unsure = noise / known + (wander * flow) ** 2

    def by(after: float) -> float:
        spread = math.sqrt(noise * after + unsure * after * after)
        gained = drift * after - distance
        return _NORMAL.cdf(gained / spread) if spread > 0 else float(gained >= 0)

    early, middle, late = (_quantile(by, q) for q in QUANTILES)
    return Forecast(early, middle, late, by(FARTHEST))


def _quantile(by: Callable[[float], float], q: float) -> float:
    """The time by which ``by`` reaches ``q``, to a hundredth; infinite where it does not."""
    if by(FARTHEST) < q:
        return math.inf
    low, high = 0.0, FARTHEST
    for _ in range(60):
        middle = (low + high) / 2 if high - low < 10 else math.sqrt(max(low, 0.01) * high)
        low, high = (low, middle) if by(middle) >= q else (middle, high)
    return high


def _long_run_variance(steps: Sequence[float]) -> float:
    """The variance of a sum of bins, per bin: with the covariances of neighbours (Bartlett's weights), at least what
    counting alone brings where steps differ at all."""
    count = len(steps)
    mean = math.fsum(steps) / count
    off = [step - mean for step in steps]
    plain = math.fsum(one * one for one in off) / (count - 1)
    lags = max(1, round(4 * (count / 100) ** (2 / 9)))
    total = plain
    for lag in range(1, lags + 1):
        together = math.fsum(a * b for a, b in zip(off, off[lag:], strict=False)) / count
        total += 2 * (1 - lag / (lags + 1)) * together
    return max(total, plain / 4)
